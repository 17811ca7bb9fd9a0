// The order's page. It shows the order as the shop's backend knows it.

const baseUrl = document.querySelector('meta[name="payments-url"]').content;
const path = location.pathname;
const find = (id) => document.querySelector(`#${id}`);

/** The smallest units as USDC, without rounding: 12500000 is 12.50. */
function inUsdc(units) {
  const fraction = String(units % 1e6).padStart(6, '0');
  return `${Math.trunc(units / 1e6)}.${fraction.replace(/0{1,4}$/, '')}`;
}

/** For each state: the title, the text, how many steps are done, and whether the order can be paid. */
const states = {
  requires_payment: [
    'Waiting for your payment',
    'We have your order, and no payment for all of it yet.',
    1,
    true,
  ],
  processing: [
    'Payment seen',
    'It is being confirmed. That takes about ten seconds here; you can leave.',
    2,
    false,
  ],
  succeeded: ['Paid', 'Thank you. Your print is being packed.', 3, false],
  shipped: ['Paid and on its way', 'Thank you. Your print has left our workshop.', 4, false],
  returning: ['Your money is on its way back', 'The network is confirming it.', 4, false],
  returned: ['Your money is back', 'Open the payment again to see when, and by which transaction.', 4, false],
  expired: [
    'Not paid in time',
    'If you have sent money, do not pay again: contact us. Otherwise you can still pay.',
    1,
    true,
  ],
  canceled: [
    'The payment was canceled',
    'If you have sent money, do not pay again: contact us. Otherwise you can still pay.',
    1,
    true,
  ],
};

function show({ product, amount_units, state }) {
  const main = document.querySelector('main');
  if (main.dataset.state === state) return;
  main.dataset.state = state;
  const [title, text, done, canBePaid] = states[state] ?? states.requires_payment;
  find('what').textContent = `${product}, ${inUsdc(amount_units)} USDC`;
  find('title').textContent = title;
  find('text').textContent = text;
  [...find('steps').children].forEach((step, i) => {
    step.classList.toggle('done', i < done);
    if (i === done - 1) step.setAttribute('aria-current', 'step');
    else step.removeAttribute('aria-current');
  });
  find('pay').hidden = !canBePaid;
  if (!canBePaid) forgetOrder();
  find('refund').hidden = state !== 'succeeded' && state !== 'shipped';
}

/** The shop's page then places a new order. */
function forgetOrder() {
  try {
    if (path === `/orders/${sessionStorage.getItem('order')}`) sessionStorage.removeItem('order');
  } catch {} // The browser blocks storage, so nothing is remembered.
}

/** Shown only while it is true. The messages of the buttons stay. */
const unreachable = 'The shop cannot be reached. Trying again…';

async function follow() {
  try {
    const answer = await fetch(`${path}/state`);
    if (!answer.ok) throw new Error(`answered ${answer.status}`);
    show(await answer.json());
    if (find('message').textContent === unreachable) find('message').textContent = '';
  } catch {
    find('message').textContent = unreachable;
  }
  if (document.querySelector('main').dataset.state !== 'returned') setTimeout(follow, 1_500);
}

find('pay').addEventListener('click', async () => {
  try {
    const answer = await fetch(`${path}/payment`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
    });
    const { client_secret: clientSecret } = await answer.json();
    // Loaded here, so that the order is shown even if the payment service cannot be reached.
    const { redirectToCheckout } = await import('payment-intents-checkout');
    redirectToCheckout({ baseUrl, clientSecret, returnUrl: path });
  } catch {
    find('message').textContent = 'The payment could not be started. Try again.';
  }
});

find('refund').addEventListener('submit', async (event) => {
  event.preventDefault();
  try {
    const answer = await fetch(`${path}/refund`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ destination: find('destination').value }),
    });
    const { error } = await answer.json();
    find('message').textContent = error ?? '';
  } catch {
    find('message').textContent =
      'The shop did not answer. Check whether the money is on its way before you try again.';
  }
});

follow();
