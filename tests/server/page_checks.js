// SPDX-License-Identifier: Apache-2.0
//
// What test_page.py runs in the page: contrast and layout, as they are computed there.
(() => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});

    // [r, g, b, a] of any CSS colour, over a background.
    function paint(colour, under) {
        canvas.clearRect(0, 0, 1, 1);
        if (under) {
            canvas.fillStyle = `rgb(${under.join(' ')})`;
            canvas.fillRect(0, 0, 1, 1);
        }
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    }

    function background(node) {
        const layers = [];
        for (let n = node; n; n = n.parentElement)
            layers.unshift(getComputedStyle(n).backgroundColor);
        return layers.reduce((under, colour) => paint(colour, under), [255, 255, 255]);
    }

    // WCAG 2.2, "relative luminance" and "contrast ratio".
    function luminance(rgb) {
        const [r, g, b] = rgb.map((c) => c / 255).map((c) =>
            c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }

    function contrast(colour, under) {
        const [a, b] = [luminance(paint(colour, under)), luminance(under)];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }

    const seen = (node) => !node.closest('.unseen') &&
        node.checkVisibility({visibilityProperty: true, opacityProperty: true});

    function* texts() {
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            const node = walker.currentNode.parentElement;
            if (walker.currentNode.data.trim() && seen(node)) yield node;
        }
    }

    // Texts and placeholders whose contrast is below 4.5, edges of fields below 3.
    function faint() {
        const found = [], named = (node) => node.outerHTML.slice(0, 60);
        const judge = (node, colour, least, what) => {
            const ratio = contrast(colour, background(node));
            if (ratio < least) found.push(`${what} ${named(node)}: ${ratio.toFixed(2)}`);
        };
        for (const node of texts()) judge(node, getComputedStyle(node).color, 4.5, 'text');
        for (const node of document.querySelectorAll('input, textarea')) {
            if (!seen(node)) continue;
            judge(node, getComputedStyle(node, '::placeholder').color, 4.5, 'placeholder');
            const framed = node.id === 'field' ? node.closest('form') : node;
            judge(framed.parentElement, getComputedStyle(framed).borderTopColor, 3, 'edge');
        }
        return found;
    }

    // Controls that reach out of the window, or are smaller than 24 by 24 pixels (WCAG 2.5.8).
    function misplaced() {
        const found = [];
        for (const node of document.querySelectorAll('button, input, textarea, summary')) {
            if (!seen(node)) continue;
            const box = node.getBoundingClientRect();
            const small = node.type !== 'checkbox' && (box.width < 24 || box.height < 24);
            if (box.left < 0 || box.right > innerWidth || small)
                found.push(`${node.outerHTML.slice(0, 60)}: ${JSON.stringify(box)}`);
        }
        const {scrollWidth, scrollHeight} = document.documentElement;
        if (scrollWidth > innerWidth || scrollHeight > innerHeight)
            found.push(`the page has ${scrollWidth} x ${scrollHeight} pixels, more than the window`);
        return found;
    }

    // The focused element: how it is called, and whether its focus can be seen.
    function focus() {
        const node = document.activeElement;
        const frame = node.id === 'field' ? node.closest('form') : node;
        const style = getComputedStyle(frame);
        const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
        const name = node.id || node.getAttribute('aria-label') || node.textContent.trim();
        return [name, (ring || style.boxShadow !== 'none') && seen(node)];
    }

    window.checks = {faint, misplaced, focus};
})();
