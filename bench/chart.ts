export interface Bar {
  name: string;
  value: number;
  isOurs: boolean;
}

/** Returns a bar chart as SVG, the longest bar first, readable on light and dark pages. */
export function drawChart(title: string, bars: readonly Bar[]): string {
  const [width, nameWidth, valueWidth, rowHeight, top] = [760, 180, 80, 34, 52];
  const longest = Math.max(...bars.map(({ value }) => value));
  const rows = bars
    .toSorted((a, b) => b.value - a.value)
    .map(({ name, value, isOurs }, i) => {
      const y = top + i * rowHeight;
      const length = Math.round((value / longest) * (width - nameWidth - valueWidth));
      return `  <text x="${nameWidth - 10}" y="${y + 17}" text-anchor="end">${name}</text>
  <rect x="${nameWidth}" y="${y}" width="${length}" height="24" rx="3"${isOurs ? ' class="ours"' : ''}/>
  <text x="${nameWidth + length + 8}" y="${y + 17}">${Math.round(value).toLocaleString('en')}</text>`;
    });
  const height = top + bars.length * rowHeight + 8;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${title}">
  <style>
    text { font: 14px system-ui, sans-serif; fill: #1f2328 }
    rect { fill: #9aa4b0 }
    .ours { fill: #2563eb }
    .title { font-weight: 600; font-size: 16px }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      rect { fill: #59636e }
      .ours { fill: #60a5fa }
    }
  </style>
  <text x="${nameWidth}" y="28" class="title">${title}</text>
${rows.join('\n')}
</svg>
`;
}
