// How the search orders its results: pages for readers first, pages about the project last.
var Scorer = {
  score: ([page, , , , score]) => {
    if (/^(tutorial|faq|concepts|how-to|guides|operating|comparison)/.test(page)) return 3 * score;
    if (/^(decisions|changelog|requirements|internals|contributing)/.test(page)) return score / 3;
    return score;
  },
  // As in Sphinx.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
