// Draws the charts with the colours of the page's scheme, and again when that changes.
(function () {
  'use strict';
  const charts = JSON.parse(document.getElementById('charts').textContent);
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  const touch = window.matchMedia('(pointer: coarse)').matches;
  const hidden = new Set();
  const chosen = {};

  function resolve(value, css) {
    if (typeof value === 'string') {
      return value.startsWith('var(') ? css.getPropertyValue(value.slice(4, -1)).trim() : value;
    }
    if (Array.isArray(value)) {
      return value.map((entry) => resolve(entry, css));
    }
    if (value && typeof value === 'object') {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolve(v, css)]));
    }
    return value;
  }

  function draw(id) {
    const figure = resolve(charts[id], getComputedStyle(document.documentElement));
    figure.data.forEach((trace, i) => {
      if (id in chosen) {
        trace.visible = i === chosen[id];
      } else if (hidden.has(trace.legendgroup)) {
        trace.visible = false;
      }
    });
    if (touch) {  // a finger scrolls the page and taps for numbers
      figure.layout.dragmode = false;
      for (const axis of ['xaxis', 'yaxis']) {
        figure.layout[axis].fixedrange = true;
      }
    }
    return Plotly.react(id, figure.data, figure.layout,
      {responsive: true, displaylogo: false, displayModeBar: false});
  }

  const drawAll = () => Promise.all(Object.keys(charts).map(draw));

  document.querySelectorAll('select[data-chart]').forEach((select) => {
    chosen[select.dataset.chart] = select.selectedIndex;
    select.addEventListener('change', () => {
      // The same strategy in every picture of this kind.
      document.querySelectorAll('select[data-chart]').forEach((other) => {
        const index = [...other.options].findIndex((o) => o.text === select.value);
        if (index >= 0) {
          other.selectedIndex = index;
          chosen[other.dataset.chart] = index;
          draw(other.dataset.chart);
        }
      });
    });
  });
  document.querySelectorAll('nav button[data-strategy]').forEach((button) => {
    button.addEventListener('click', () => {
      const show = button.getAttribute('aria-pressed') === 'false';
      button.setAttribute('aria-pressed', String(show));
      hidden[show ? 'delete' : 'add'](button.dataset.strategy);
      drawAll();
    });
  });
  if (window.matchMedia('(max-width: 700px)').matches) {  // a short page first
    document.querySelectorAll('details.verdict').forEach((part) => part.removeAttribute('open'));
  }
  dark.addEventListener('change', drawAll);
  drawAll().then(() => document.documentElement.setAttribute('data-drawn', ''));
})();
