// Stands in for the page's script, which checkout/build.ts makes.
document.querySelector('main')?.replaceChildren('The checkout page is not built: run npm run generate.');
