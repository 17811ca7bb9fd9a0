import http from 'node:http';
import https from 'node:https';

export interface HttpAnswer {
  status: number;
  headers: http.IncomingHttpHeaders;
  body: string;
}

/** Sends one HTTP request, with full control over its headers and bytes. An https URL needs the server's `ca`. */
export function httpRequest(
  url: string,
  options: https.RequestOptions,
  body?: string | Uint8Array,
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const { request: open } = url.startsWith('https:') ? https : http;
    const request = open(url, { method: 'POST', ...options }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks).toString(),
        });
      });
    });
    request.on('error', reject);
    request.end(body);
  });
}
