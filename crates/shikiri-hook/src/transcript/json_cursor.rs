//! Walks through a line of JSON and reads only the wanted fields.
//!
//! Skipped values are not parsed: strings and brackets are followed, and between them only numbers
//! and literals may stand. That is enough to detect a line that was cut off, lost its start, or was
//! cut off and continued by another line: something stays open, is closed too often, or a name
//! stands outside of quotes.

pub(super) struct JsonCursor<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> JsonCursor<'a> {
    pub(super) fn new(line: &'a [u8]) -> Self {
        Self { line, at: 0 }
    }

    /// Walks through an object: `field` gets each raw name and must walk over or into the value.
    /// None if the line is malformed.
    pub(super) fn object(
        &mut self,
        mut field: impl FnMut(&[u8], &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            let name = self.string()?;
            self.expect(b':')?;
            field(name, self)?;
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    /// The raw text of a string, without its quotes.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        self.finish_string()?;
        self.line.get(start..self.at - 1)
    }

    /// A value that may be of any kind.
    pub(super) fn skip(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'{' | b'[' => self.skip_nested(),
            _ => self.scalar().map(drop),
        }
    }

    /// A number or literal: a value without quotes or brackets.
    pub(super) fn scalar(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        let rest = self.line.get(self.at..)?;
        let length = rest.iter().position(|byte| !is_scalar(*byte))?;
        self.at += length;
        rest.get(..length).filter(|scalar| !scalar.is_empty())
    }

    /// The next byte.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while self.line.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.line.get(self.at).copied()
    }

    /// Whether the end is reached.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn skip_nested(&mut self) -> Option<()> {
        let mut open = 0_usize;
        loop {
            let byte = *self.line.get(self.at)?;
            self.at += 1;
            match byte {
                b'"' => self.finish_string()?,
                b'{' | b'[' => open += 1,
                b'}' | b']' => {
                    open -= 1;
                    if open == 0 {
                        return Some(());
                    }
                }
                b',' | b':' => {}
                _ if is_scalar(byte) || byte.is_ascii_whitespace() => {}
                _ => return None,
            }
        }
    }

    /// From after a string's opening quote to after its closing quote: the first one that is not
    /// escaped by a backslash.
    fn finish_string(&mut self) -> Option<()> {
        let (start, rest) = (self.at, self.line.get(self.at..)?);
        let last = memchr::memchr_iter(b'"', rest).find(|quote| {
            let slashes = rest[..*quote].iter().rev().take_while(|byte| **byte == b'\\').count();
            slashes.is_multiple_of(2)
        })?;
        self.at = start + last + 1;
        Some(())
    }
}

/// Whether numbers, `true`, `false` or `null` can contain this byte.
fn is_scalar(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'E')
        || matches!(byte, b't' | b'r' | b'u' | b'e' | b'f' | b'a' | b'l' | b's' | b'n')
}
