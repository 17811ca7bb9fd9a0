// The product's page. It gets the client_secret of one order, and no other secret.

const baseUrl = document.querySelector('meta[name="payments-url"]').content;
const message = document.querySelector('#message');
const popupButton = document.querySelector('#popup');
const redirectButton = document.querySelector('#redirect');
// Loaded before the click: browsers open a popup only during it.
const { openCheckout, redirectToCheckout } = await import('payment-intents-checkout').catch((error) => {
  message.textContent = 'The payment page cannot be reached. Reload this page to try again.';
  throw error;
});
/** Undefined if the browser blocks it. */
const storage = (() => {
  try {
    return sessionStorage;
  } catch {}
})();
/** The order that was placed here and is not paid. A second click pays the same one, also after a reload. */
let orderId = storage?.getItem('order') ?? undefined;

/** The request that is under way: both buttons pay the same order. */
let asking;

function clientSecret() {
  asking ??= askForSecret().finally(() => {
    asking = undefined;
  });
  return asking;
}

/** Asks the shop's backend for the order's client_secret. The first call places the order. */
async function askForSecret() {
  const answer = await fetch(orderId === undefined ? '/orders' : `/orders/${orderId}/payment`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ product: 'harbour' }),
  });
  const body = await answer.json();
  // The shop has lost the order: the next click places a new one.
  if (answer.status === 404) orderId = storage?.removeItem('order');
  if (!answer.ok) throw new Error(body.error);
  orderId = body.order_id;
  storage?.setItem('order', orderId);
  return body.client_secret;
}

// For the user interface only: a callback may come twice, be forged, or never come. The order's page asks the
// backend, which relies on the service's webhook.
const showOrder = () => location.assign(`/orders/${orderId}`);

popupButton.addEventListener('click', async () => {
  try {
    // Await nothing before this: browsers open a popup only during the click.
    const way = await openCheckout({
      baseUrl,
      clientSecret,
      onProcessing: showOrder,
      onSuccess: showOrder,
      onEnd({ status }) {
        if (status !== undefined && status !== 'requires_payment') return showOrder();
        message.textContent =
          orderId === undefined ? '' : 'The checkout was closed. If you have not paid, you can do so now.';
      },
      // Used if the browser blocks the popup.
      returnUrl: '/orders',
    });
    if (way === 'popup') message.textContent = 'The checkout is open in a window of its own.';
  } catch {
    message.textContent = 'The payment could not be started. Try again.';
  }
});

redirectButton.addEventListener('click', async () => {
  redirectButton.disabled = true;
  try {
    redirectToCheckout({ baseUrl, clientSecret: await clientSecret(), returnUrl: `/orders/${orderId}` });
  } catch {
    message.textContent = 'The payment could not be started. Try again.';
  }
  redirectButton.disabled = false;
});

popupButton.disabled = false;
redirectButton.disabled = false;
