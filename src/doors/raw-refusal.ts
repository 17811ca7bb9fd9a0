/** A refusal as the bytes of an HTTP/1.1 answer that ends its connection, for use without a Node response object. */
export function rawRefusal(status: string, requestId: string, error: object): string {
  const body = JSON.stringify(error);
  return (
    `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n` +
    `X-Request-Id: ${requestId}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  );
}
