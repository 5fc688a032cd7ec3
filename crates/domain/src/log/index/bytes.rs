//! How the index is written down: little-endian numbers and lists with their length, nothing else.
//!
//! Both ways it goes through a small buffer: an index is large, and there should be only one of it in memory.

use std::io::{self, BufRead, BufWriter, Read, Write};

/// How many bytes of a list are made at once.
const BUFFER_BYTES: usize = 64 << 10;

/// What is read is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Passes bytes on.
pub(super) struct Writer<'a> {
    to: BufWriter<&'a mut dyn Write>,
    /// After the first error nothing is written.
    error: Option<io::Error>,
}

/// Hands bytes out. They may be damaged, so that nothing they say is relied on, their length neither.
pub(super) struct Reader<'a> {
    from: &'a mut dyn BufRead,
    left: usize,
}

impl<'a> Writer<'a> {
    pub fn new(to: &'a mut dyn Write) -> Self {
        Self { to: BufWriter::with_capacity(BUFFER_BYTES, to), error: None }
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.error = self.to.write_all(bytes).err();
        }
    }

    pub fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    pub fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    pub fn text(&mut self, text: &str) {
        self.count(text.len());
        self.bytes(text.as_bytes());
    }

    pub fn list<const BYTES: usize, T: Copy>(&mut self, list: &[T], bytes: fn(T) -> [u8; BYTES]) {
        self.count(list.len());
        let mut buffer = Vec::new();
        for items in list.chunks(BUFFER_BYTES / BYTES) {
            buffer.clear();
            buffer.extend(items.iter().flat_map(|item| bytes(*item)));
            self.bytes(&buffer);
        }
    }

    /// Whether everything was written.
    pub fn finish(mut self) -> io::Result<()> {
        self.error.map_or_else(|| self.to.flush(), Err)
    }
}

impl<'a> Reader<'a> {
    /// Reads `left` bytes.
    pub fn new(from: &'a mut dyn BufRead, left: usize) -> Self {
        Self { from, left }
    }

    pub fn bytes(&mut self, count: usize) -> Result<Vec<u8>, Malformed> {
        self.left = self.left.checked_sub(count).ok_or(Malformed)?;
        let mut bytes = Vec::with_capacity(count);
        let read = self.from.take(count as u64).read_to_end(&mut bytes);
        if read.is_ok_and(|read| read == count) { Ok(bytes) } else { Err(Malformed) }
    }

    pub fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Malformed> {
        self.left = self.left.checked_sub(BYTES).ok_or(Malformed)?;
        let mut array = [0; BYTES];
        self.from.read_exact(&mut array).map_err(|_| Malformed)?;
        Ok(array)
    }

    pub fn number(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// How many of something follow; each takes a byte at least, or there are few of them.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        const FEW: usize = 1 << 20;
        let count = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        if count <= self.left.max(FEW) { Ok(count) } else { Err(Malformed) }
    }

    pub fn text(&mut self) -> Result<String, Malformed> {
        let count = self.count()?;
        String::from_utf8(self.bytes(count)?).map_err(|_| Malformed)
    }

    pub fn list<const BYTES: usize, T>(
        &mut self,
        item: fn([u8; BYTES]) -> T,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.count()?;
        let bytes = count.checked_mul(BYTES).filter(|bytes| *bytes <= self.left);
        let mut list = Vec::with_capacity(bytes.ok_or(Malformed)? / BYTES);
        while list.len() < count {
            let (items, _) = self.from.fill_buf().map_err(|_| Malformed)?.as_chunks::<BYTES>();
            let items = &items[..items.len().min(count - list.len())];
            let taken = items.len() * BYTES;
            list.extend(items.iter().map(|bytes| item(*bytes)));
            self.from.consume(taken);
            self.left -= taken;
            // An item that lies across the end of the buffer.
            if taken == 0 {
                list.push(item(self.array()?));
            }
        }
        Ok(list)
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}
