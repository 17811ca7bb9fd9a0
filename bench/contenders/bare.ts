// node:http that parses a JSON body and echoes it: the minimum cost of an answer.

import http from 'node:http';

const server = http.createServer((request, response) => {
  const chunks: Buffer[] = [];
  request
    .on('data', (chunk: Buffer) => chunks.push(chunk))
    .on('end', () => {
      const body = JSON.stringify(JSON.parse(Buffer.concat(chunks).toString()));
      response.writeHead(200, {
        'Content-Type': 'application/json',
        'Content-Length': Buffer.byteLength(body),
      });
      response.end(body);
    });
});
server.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('ready'));
