//! The lines of a file, read in blocks, from a place that was reached before.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use memchr::memmem::Finder;

use super::ahead::{Ahead, ROOM, read_at};

/// How far a file has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub inode: u64,
    pub offset: u64,
    pub lines: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// What is read at a time.
    pub(super) block: usize,
    /// A line that is longer tells nothing: it is passed over, and never held whole.
    pub(super) longest: usize,
    /// From so many bytes on it pays to read ahead.
    pub(super) long: u64,
}

impl Sizes {
    /// A block stays in the processor's cache while it is searched.
    pub(super) const USUAL: Self = Self { block: 256 << 10, longest: 16 << 20, long: 8 << 20 };
}

pub(super) struct Lines<'a> {
    file: &'a File,
    until: Instant,
    sizes: Sizes,
    /// Up to and with the last lines that were given, or into a line that is passed over.
    position: Position,
    reader: Option<Ahead>,
    pub(super) buffer: Vec<u8>,
    /// The part of the buffer that follows the position.
    ahead: Range<usize>,
    /// Whether the position is inside a line that is not given.
    passing: bool,
}

/// Whole lines that were read together.
pub(super) struct Block<'a> {
    /// The number of the line before.
    number: &'a mut u64,
    text: &'a [u8],
}

impl<'a> Block<'a> {
    /// Lines are counted as they are given: each with its number, where it is, and without its end.
    pub(super) fn lines(self) -> impl Iterator<Item = (u64, Range<usize>, &'a [u8])> {
        let (Self { number, text }, mut start) = (self, 0);
        memchr::memchr_iter(b'\n', text).map(move |end| {
            let range = start..end;
            start = end + 1;
            *number += 1;
            (*number, range.clone(), &text[range])
        })
    }

    /// Where the word is.
    pub(super) fn places(&self, word: &'a Finder<'_>) -> impl Iterator<Item = usize> + use<'a> {
        word.find_iter(self.text)
    }

    /// The lines that hold the word, which are not counted: what is between them is looked at once.
    pub(super) fn holding(&self, word: &Finder<'_>) -> Vec<&'a [u8]> {
        let (text, mut lines, mut at) = (self.text, Vec::new(), 0);
        while let Some(found) = text.get(at..).and_then(|rest| word.find(rest)) {
            let found = at + found;
            let start = memchr::memrchr(b'\n', &text[at..found]).map_or(at, |end| at + end + 1);
            let end = memchr::memchr(b'\n', &text[found..]).map_or(text.len(), |end| found + end);
            lines.push(&text[start..end]);
            at = end + 1;
        }
        lines
    }
}

impl<'a> Lines<'a> {
    /// Begins at a position, or after the line that the position is in.
    pub(super) fn new(
        file: &'a File,
        position: Position,
        until: Instant,
        sizes: Sizes,
    ) -> io::Result<Self> {
        let mut before = [b'\n'];
        if let Some(offset) = position.offset.checked_sub(1) {
            file.read_exact_at(&mut before, offset)?;
        }
        let passing = before != [b'\n'];
        let left = file.metadata()?.len().saturating_sub(position.offset);
        let reader = (left >= sizes.long)
            .then(|| Ahead::start(file, position.offset, sizes.block))
            .flatten();
        let buffer = vec![0; if reader.is_some() { 0 } else { sizes.block }];
        Ok(Self { file, until, sizes, position, reader, buffer, ahead: 0..0, passing })
    }

    /// The next whole lines, if there are any. When the time is over that is an error, `TimedOut`;
    /// the position is good then, too.
    pub(super) fn next(&mut self) -> io::Result<Option<Block<'_>>> {
        let mut searched = 0;
        loop {
            let ahead = &self.buffer[self.ahead.clone()];
            if self.passing {
                if let Some(end) = memchr::memchr(b'\n', ahead) {
                    self.take(end + 1);
                    self.position.lines += 1;
                    self.passing = false;
                    continue;
                }
                self.take(self.ahead.len());
            } else if let Some(end) = memchr::memrchr(b'\n', &ahead[searched..]) {
                let start = self.ahead.start;
                self.take(searched + end + 1);
                let text = &self.buffer[start..self.ahead.start];
                return Ok(Some(Block { number: &mut self.position.lines, text }));
            } else if self.ahead.len() >= self.sizes.longest {
                self.passing = true;
                continue;
            }
            searched = self.ahead.len();
            if self.read_on()? == 0 {
                return Ok(None);
            }
        }
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    fn take(&mut self, length: usize) {
        self.ahead.start += length;
        self.position.offset += length as u64;
    }

    /// Reads what follows what is ahead. How much that was.
    fn read_on(&mut self) -> io::Result<usize> {
        if Instant::now() >= self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.reader.take() {
            Some(reader) => {
                let read = self.take_from(&reader);
                self.reader = Some(reader);
                read
            }
            None => self.read_here(),
        }
    }

    /// With more room if a line takes all there is.
    fn read_here(&mut self) -> io::Result<usize> {
        self.buffer.copy_within(self.ahead.clone(), 0);
        self.ahead = 0..self.ahead.len();
        if self.ahead.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let offset = self.position.offset + self.ahead.end as u64;
        let read = read_at(self.file, &mut self.buffer[self.ahead.end..], offset)?;
        self.ahead.end += read;
        Ok(read)
    }

    /// The rest of a line goes in front of what was read; a long one is put together here.
    fn take_from(&mut self, reader: &Ahead) -> io::Result<usize> {
        let (mut block, rest) = (reader.next()?, self.ahead.clone());
        let read = block.len() - ROOM;
        let used = match ROOM.checked_sub(rest.len()) {
            Some(start) => {
                block[start..ROOM].copy_from_slice(&self.buffer[rest]);
                self.ahead = start..block.len();
                std::mem::replace(&mut self.buffer, block)
            }
            None => {
                self.buffer.truncate(rest.end);
                self.buffer.extend_from_slice(&block[ROOM..]);
                self.ahead = rest.start..self.buffer.len();
                block
            }
        };
        reader.give_back(used);
        Ok(read)
    }
}
