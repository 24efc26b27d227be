//! Splits a shell line into commands of words. Syntax that it does not know is taken as text.

/// Nested substitutions are followed to this depth.
const DEEPEST: usize = 16;

/// One word: as written and as the shell reads it.
#[derive(Debug, Default)]
pub(super) struct ShellWord<'a> {
    pub(super) raw: &'a str,
    pub(super) plain: String,
    /// The redirection that the word begins with, such as `2>`. Empty for other words.
    pub(super) operator: &'a str,
}

impl ShellWord<'_> {
    /// The file of a redirection. Empty if it is the next word.
    pub(super) fn target(&self) -> &str {
        self.plain.strip_prefix(self.operator).unwrap_or_default()
    }
}

/// A here-document, whose text begins in the line after its operator.
struct HereDocument {
    end: String,
    without_tabs: bool,
    /// The delimiter is quoted, so the shell runs nothing in the text.
    is_quoted: bool,
}

pub(super) struct ShellParser<'a, 'f> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// Inside of `((…))`, where `<` and `>` compare.
    arithmetic: usize,
    documents: Vec<HereDocument>,
    found: &'f mut Vec<Vec<ShellWord<'a>>>,
}

/// A command that is being read.
#[derive(Default)]
struct PartialCommand<'a> {
    words: Vec<ShellWord<'a>>,
    /// The start of the word that is being read.
    start: Option<usize>,
    plain: String,
    operator: &'a str,
}

impl<'a, 'f> ShellParser<'a, 'f> {
    pub(super) fn new(text: &'a str, found: &'f mut Vec<Vec<ShellWord<'a>>>) -> Self {
        Self { text, at: 0, depth: 0, arithmetic: 0, documents: Vec::new(), found }
    }

    /// Reads the whole text.
    pub(super) fn read(mut self) {
        while self.at < self.text.len() {
            self.list(None);
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        self.text[self.at..].starts_with(text)
    }

    /// Reads commands up to and including an end character.
    fn list(&mut self, end: Option<u8>) {
        let mut open = PartialCommand::default();
        while let Some(c) = self.peek(0) {
            if Some(c) == end {
                break;
            }
            match c {
                b' ' | b'\t' | b'\r' => self.finish_word(&mut open),
                b'\n' => {
                    self.finish(&mut open);
                    self.at += 1;
                    self.pass_documents();
                    continue;
                }
                b';' | b'|' | b')' => self.finish(&mut open),
                b'&' if self.peek(1) != Some(b'>') => self.finish(&mut open),
                b'&' | b'<' | b'>' if self.is_redirection() => {
                    self.redirection(&mut open);
                    continue;
                }
                b'#' if open.start.is_none() => {
                    let rest = &self.text[self.at..];
                    self.at += rest.find('\n').unwrap_or(rest.len());
                    continue;
                }
                _ => {
                    self.part_of_word(&mut open);
                    continue;
                }
            }
            self.at += 1;
        }
        self.finish(&mut open);
        self.at = self.text.len().min(self.at + 1);
    }

    /// Whether a `<` or `>` names a file. `<(…)` and `>(…)` run a command.
    fn is_redirection(&self) -> bool {
        self.arithmetic == 0 && self.peek(1) != Some(b'(')
    }

    /// Begins a word with the operator of a redirection. The file may follow in the same word.
    fn redirection(&mut self, open: &mut PartialCommand<'a>) {
        let is_digit = |byte: u8| byte.is_ascii_digit();
        if !open.start.is_some_and(|start| self.text[start..self.at].bytes().all(is_digit)) {
            self.finish_word(open);
        }
        let start = *open.start.get_or_insert(self.at);
        if self.starts_with("<<") && !self.starts_with("<<<") {
            open.operator = &self.text[start..self.at + 2];
            self.here_document(&mut open.plain);
            return;
        }
        let rest = &self.text[self.at..];
        let known = ["<<<", "&>>", "&>", ">>", ">&", ">|", "<>", "<&"];
        let operator = known.into_iter().find(|operator| rest.starts_with(operator));
        self.at += operator.map_or(1, str::len);
        open.operator = &self.text[start..self.at];
        open.operator.clone_into(&mut open.plain);
    }

    fn part_of_word(&mut self, open: &mut PartialCommand<'a>) {
        let start = *open.start.get_or_insert(self.at);
        match self.peek(0) {
            Some(b'\'') => self.quoted(b'\'', &mut open.plain),
            Some(b'"') => self.double_quoted(&mut open.plain),
            Some(b'$') if self.peek(1) == Some(b'\'') => {
                self.at += 1;
                self.escaped(&mut open.plain);
            }
            Some(b'\\') if self.peek(1) == Some(b'\n') => {
                self.at += 2;
                // A line continuation. Between words, no word has begun.
                if start + 2 == self.at {
                    open.start = None;
                }
            }
            Some(b'\\') => {
                self.at += 1;
                self.plain_char(&mut open.plain);
            }
            Some(b'(') if self.text[start..self.at].ends_with('=') => self.array(&mut open.plain),
            _ if self.substitution(&mut open.plain) => {}
            _ => self.plain_char(&mut open.plain),
        }
    }

    /// Reads the commands inside `$(…)`, `` `…` ``, `(…)` or `${…}`. Returns false if there is
    /// none.
    fn substitution(&mut self, plain: &mut String) -> bool {
        let start = self.at;
        let (opens, end) = match self.peek(0) {
            _ if self.depth == DEEPEST => return false,
            Some(b'$') if self.peek(1) == Some(b'(') => (2, b')'),
            Some(b'$') if self.peek(1) == Some(b'{') => {
                self.braces(plain);
                return true;
            }
            Some(b'(') => (1, b')'),
            Some(b'`') => (1, b'`'),
            _ => return false,
        };
        let is_arithmetic = self.text[start..].trim_start_matches('$').starts_with("((");
        self.at += opens;
        self.depth += 1;
        self.arithmetic += usize::from(is_arithmetic);
        self.list(Some(end));
        self.arithmetic -= usize::from(is_arithmetic);
        self.depth -= 1;
        plain.push_str(&self.text[start..self.at]);
        true
    }

    fn braces(&mut self, plain: &mut String) {
        self.depth += 1;
        let start = self.at;
        let mut inner = String::new();
        self.at += 2;
        while let Some(c) = self.peek(0) {
            match c {
                b'}' => break,
                b'\'' => self.quoted(b'\'', &mut inner),
                b'"' => self.double_quoted(&mut inner),
                b'\\' => {
                    self.at += 1;
                    self.plain_char(&mut inner);
                }
                b'$' | b'`' if self.substitution(&mut inner) => {}
                _ => self.plain_char(&mut inner),
            }
        }
        self.at = self.text.len().min(self.at + 1);
        self.depth -= 1;
        plain.push_str(&self.text[start..self.at]);
    }

    /// `name=(…)` holds words, not commands.
    fn array(&mut self, plain: &mut String) {
        let start = self.at;
        let mut inner = String::new();
        self.at += 1;
        while let Some(c) = self.peek(0) {
            match c {
                b')' => break,
                b'\'' => self.quoted(b'\'', &mut inner),
                b'"' => self.double_quoted(&mut inner),
                b'$' | b'`' if self.substitution(&mut inner) => {}
                _ => self.plain_char(&mut inner),
            }
        }
        self.at = self.text.len().min(self.at + 1);
        plain.push_str(&self.text[start..self.at]);
    }

    /// Text between two quotes, unchanged.
    fn quoted(&mut self, quote: u8, plain: &mut String) {
        self.at += 1;
        let rest = &self.text[self.at..];
        let length = rest.bytes().position(|byte| byte == quote).unwrap_or(rest.len());
        plain.push_str(&rest[..length]);
        self.at = self.text.len().min(self.at + length + 1);
    }

    /// `$'…'`, in which a backslash escapes the quote.
    fn escaped(&mut self, plain: &mut String) {
        self.at += 1;
        while let Some(c) = self.peek(0).filter(|c| *c != b'\'') {
            self.at += usize::from(c == b'\\');
            self.plain_char(plain);
        }
        self.at = self.text.len().min(self.at + 1);
    }

    fn double_quoted(&mut self, plain: &mut String) {
        self.at += 1;
        while let Some(c) = self.peek(0).filter(|c| *c != b'"') {
            match c {
                b'\\' => {
                    self.at += 1;
                    self.plain_char(plain);
                }
                b'$' | b'`' if self.substitution(plain) => {}
                _ => self.plain_char(plain),
            }
        }
        self.at = self.text.len().min(self.at + 1);
    }

    /// Any one character.
    fn plain_char(&mut self, plain: &mut String) {
        if let Some(c) = self.text[self.at..].chars().next() {
            plain.push(c);
            self.at += c.len_utf8();
        }
    }

    /// `<<END`: the text follows after this line.
    fn here_document(&mut self, plain: &mut String) {
        let start = self.at;
        self.at += 2;
        let without_tabs = self.peek(0) == Some(b'-');
        self.at += usize::from(without_tabs);
        while matches!(self.peek(0), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        let (word, mut end) = (self.at, String::new());
        while let Some(c) = self.peek(0) {
            match c {
                b'\'' | b'"' => self.quoted(c, &mut end),
                b'\\' => {
                    self.at += 1;
                    self.plain_char(&mut end);
                }
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'|' | b'&' | b'<' | b'>' | b'(' | b')' => {
                    break;
                }
                _ => self.plain_char(&mut end),
            }
        }
        let written = &self.text[word..self.at];
        let is_quoted = written != end;
        if !written.is_empty() {
            self.documents.push(HereDocument { end, without_tabs, is_quoted });
        }
        plain.push_str(&self.text[start..self.at]);
    }

    /// Skips the here-documents of this line and reads the commands that the shell runs in them.
    fn pass_documents(&mut self) {
        for document in std::mem::take(&mut self.documents) {
            while self.at < self.text.len() {
                let rest = &self.text[self.at..];
                let line = rest.split('\n').next().unwrap_or(rest);
                let next = self.text.len().min(self.at + line.len() + 1);
                let bare = if document.without_tabs { line.trim_start_matches('\t') } else { line };
                if bare == document.end {
                    self.at = next;
                    break;
                }
                let mut ignored = String::new();
                while self.at < next {
                    match self.peek(0) {
                        Some(b'$' | b'`') if !document.is_quoted => {
                            if !self.substitution(&mut ignored) {
                                self.at += 1;
                            }
                        }
                        _ => self.plain_char(&mut ignored),
                    }
                }
            }
        }
    }

    fn finish_word(&mut self, open: &mut PartialCommand<'a>) {
        if let Some(start) = open.start.take() {
            let plain = std::mem::take(&mut open.plain);
            let operator = std::mem::take(&mut open.operator);
            open.words.push(ShellWord { raw: &self.text[start..self.at], plain, operator });
        }
    }

    fn finish(&mut self, open: &mut PartialCommand<'a>) {
        self.finish_word(open);
        if !open.words.is_empty() {
            self.found.push(std::mem::take(&mut open.words));
        }
    }
}
