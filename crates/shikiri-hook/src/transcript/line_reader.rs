//! Reads the lines of a file in blocks, from a position that was reached before.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use memchr::memmem::Finder;

use super::read_ahead::{ROOM, ReadAhead, read_at};

/// How far a file has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinePosition {
    pub inode: u64,
    pub offset: u64,
    pub lines: u64,
}

#[derive(Clone, Copy)]
pub(super) struct LineReadSizes {
    /// Bytes of one read.
    pub(super) block: usize,
    /// A longer line is skipped and never held in memory.
    pub(super) longest: usize,
    /// From this length on, the file is read ahead by a thread.
    pub(super) long: u64,
}

impl LineReadSizes {
    /// A block stays in the processor's cache while it is searched.
    pub(super) const USUAL: Self = Self { block: 256 << 10, longest: 16 << 20, long: 8 << 20 };
}

pub(super) struct TranscriptLineReader<'a> {
    file: &'a File,
    until: Instant,
    sizes: LineReadSizes,
    /// The end of the lines that were returned, or a position in a line that is skipped.
    position: LinePosition,
    reader: Option<ReadAhead>,
    pub(super) buffer: Vec<u8>,
    /// The part of the buffer after the position.
    ahead: Range<usize>,
    /// Whether the position is inside a skipped line.
    passing: bool,
}

/// Complete lines that were read together.
pub(super) struct LineBlock<'a> {
    /// The number of the line before the block.
    number: &'a mut u64,
    text: &'a [u8],
}

impl<'a> LineBlock<'a> {
    /// The lines with their numbers and ranges, without line ends. Iterating counts them.
    pub(super) fn lines(self) -> impl Iterator<Item = (u64, Range<usize>, &'a [u8])> {
        let (Self { number, text }, mut start) = (self, 0);
        memchr::memchr_iter(b'\n', text).map(move |end| {
            let range = start..end;
            start = end + 1;
            *number += 1;
            (*number, range.clone(), &text[range])
        })
    }

    /// The positions of a text.
    pub(super) fn places(&self, word: &'a Finder<'_>) -> impl Iterator<Item = usize> + use<'a> {
        word.find_iter(self.text)
    }

    /// The lines that contain a text, without counting. Text between matches is searched only once.
    pub(super) fn lines_containing(&self, word: &Finder<'_>) -> Vec<&'a [u8]> {
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

impl<'a> TranscriptLineReader<'a> {
    /// Starts at a position, or after the line that contains it.
    pub(super) fn new(
        file: &'a File,
        position: LinePosition,
        until: Instant,
        sizes: LineReadSizes,
    ) -> io::Result<Self> {
        let mut before = [b'\n'];
        if let Some(offset) = position.offset.checked_sub(1) {
            file.read_exact_at(&mut before, offset)?;
        }
        let passing = before != [b'\n'];
        let left = file.metadata()?.len().saturating_sub(position.offset);
        let reader = (left >= sizes.long)
            .then(|| ReadAhead::start(file, position.offset, sizes.block))
            .flatten();
        let buffer = vec![0; if reader.is_some() { 0 } else { sizes.block }];
        Ok(Self { file, until, sizes, position, reader, buffer, ahead: 0..0, passing })
    }

    /// The next complete lines, if any. At the deadline the error is `TimedOut`, and the position
    /// is valid as well.
    pub(super) fn next(&mut self) -> io::Result<Option<LineBlock<'_>>> {
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
                return Ok(Some(LineBlock { number: &mut self.position.lines, text }));
            } else if self.ahead.len() >= self.sizes.longest {
                self.passing = true;
                continue;
            }
            searched = self.ahead.len();
            if self.fill_buffer()? == 0 {
                return Ok(None);
            }
        }
    }

    pub(super) fn position(&self) -> LinePosition {
        self.position
    }

    fn take(&mut self, length: usize) {
        self.ahead.start += length;
        self.position.offset += length as u64;
    }

    /// Reads the next bytes; returns their number.
    fn fill_buffer(&mut self) -> io::Result<usize> {
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

    /// Enlarges the buffer if a line fills it.
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

    /// Puts the start of an incomplete line in front of the next block. Long lines are assembled
    /// here.
    fn take_from(&mut self, reader: &ReadAhead) -> io::Result<usize> {
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
        reader.recycle_block(used);
        Ok(read)
    }
}
