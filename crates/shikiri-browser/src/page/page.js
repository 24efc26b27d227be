// What we do inside a page, in a world of our own beside the page's scripts: they neither see this
// nor can change what it uses. Called as (…)(what, a); `a.s` has the provider's selectors. Only
// `dismiss`, `focus`, `insert` and `send` change anything.
(what, a) => {
  const s = a.s;

  const visible = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== "hidden";

  // The first visible match, by the order of the selectors.
  const first = (list) => {
    for (const selector of list) {
      for (const e of document.querySelectorAll(selector)) if (visible(e)) return e;
    }
    return null;
  };

  // All matches in the order of the page; of nested ones the outermost.
  const all = (list) => {
    if (list.length === 0) return [];
    const any = list.join(",");
    return [...document.querySelectorAll(any)].filter((e) => !e.parentElement?.closest(any));
  };

  const follows = (e, other) => (other.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0;

  // What stays of a text however a page shows it: letters and digits, or else all but white space.
  const essence = (text) => text.replace(/[^\p{L}\p{N}]/gu, "") || text.replace(/\s/g, "");

  const content = (e) => (typeof e.value === "string" ? e.value : e.innerText);

  const enabled = (e) => !e.disabled && e.getAttribute("aria-disabled") !== "true";

  // A number by which a text is known again.
  const mark = (text) => [...text].reduce((sum, c) => (Math.imul(sum, 31) + c.codePointAt(0)) >>> 0, 7);

  // Our last question, and what answers it.
  const exchange = () => {
    const questions = all(s.question);
    const answers = all(s.answer);
    const question = questions.at(-1);
    const fresh = question ? answers.filter((e) => follows(e, question)) : [];
    return { questions, answers, question, fresh };
  };

  const look = () => {
    const { questions, answers, question, fresh } = exchange();
    const input = first(s.input);
    const send = first(s.send);
    const head = essence(a.head ?? "").slice(0, 40);
    const text = fresh.map((e) => e.textContent).join("\n");
    return {
      url: location.href,
      status: performance.getEntriesByType("navigation")[0]?.responseStatus ?? 0,
      loaded: document.readyState === "complete",
      input: input !== null,
      empty: input !== null && essence(content(input)) === "",
      send: send !== null && enabled(send),
      busy: first(s.stop) !== null,
      login: first(s.login) !== null,
      gone: first(s.gone) !== null,
      dialog: first(s.dismiss) !== null,
      questions: questions.length,
      answers: answers.length,
      mine: question !== undefined && essence(question.textContent).includes(head),
      length: text.trim() === "" ? 0 : text.length,
      mark: mark(text.slice(-200)),
      done: question !== undefined && all(s.done).some((e) => follows(e, question)),
    };
  };

  const change = (ms) =>
    new Promise((resolve) => {
      const observer = new MutationObserver(() => end());
      const timer = setTimeout(() => end(), ms);
      const end = () => {
        observer.disconnect();
        clearTimeout(timer);
        resolve();
      };
      observer.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
    });

  const acts = {
    look,

    // The same as soon as it differs from `a.known`, or when the time is over.
    watch: async () => {
      const until = performance.now() + a.ms;
      for (;;) {
        const now = look();
        const left = until - performance.now();
        if (JSON.stringify(now) !== a.known || left <= 0) return now;
        await change(left);
      }
    },

    // How often each selector matches, for people who correct them.
    survey: () =>
      Object.fromEntries(
        Object.entries(s).map(([field, list]) => [
          field,
          list.map((selector) => {
            const found = [...document.querySelectorAll(selector)];
            return { selector, found: found.length, visible: found.filter(visible).length };
          }),
        ]),
      ),

    dismiss: () => {
      const button = first(s.dismiss);
      button?.click();
      return button !== null;
    },

    // All of the input box is selected, so that what comes next replaces it.
    focus: () => {
      const input = first(s.input);
      if (input === null) return false;
      input.focus();
      if (typeof input.select === "function") input.select();
      else getSelection().selectAllChildren(input);
      const active = document.activeElement;
      return active === input || input.contains(active);
    },

    insert: () => document.execCommand("insertText", false, a.text),

    typed: () => {
      const input = first(s.input);
      const there = input === null ? "" : essence(content(input));
      const wanted = essence(a.text);
      return { same: there === wanted, head: there.startsWith(wanted.slice(0, 20)), there: there.length, wanted: wanted.length };
    },

    // Looks and clicks in one step: nothing can come between.
    send: () => {
      const input = first(s.input);
      const head = essence(a.head).slice(0, 20);
      if (input === null || !essence(content(input)).startsWith(head)) return "changed";
      const button = first(s.send);
      if (button === null) return "missing";
      if (!enabled(button)) return "disabled";
      button.click();
      return "sent";
    },

    // The text of what answers our last question, as it is shown.
    read: () => {
      const parts = exchange().fresh.flatMap((e) => {
        const inner = s.answer_text.length === 0 ? [] : [...e.querySelectorAll(s.answer_text.join(","))];
        const any = s.answer_text.join(",");
        const outer = inner.filter((i) => !i.parentElement?.closest(any));
        return outer.length === 0 ? [e] : outer;
      });
      const shown = parts.map((e) => (e.innerText.trim() === "" ? e.textContent : e.innerText).trim());
      return shown.filter((text) => text !== "").join("\n\n").toWellFormed();
    },
  };

  // A selector that the browser cannot read is found by trying each.
  for (const [field, list] of a.check ? Object.entries(s) : []) {
    for (const selector of list) {
      try {
        document.querySelector(selector);
      } catch {
        return { bad: `${field}: ${selector}` };
      }
    }
  }
  return acts[what]();
}
