// Stands in for the SDK, which checkout/build.ts makes.
export function openCheckout() {
  throw new Error('the SDK is not built: run npm run generate');
}
