//! How the index is written down: little-endian numbers and lists with their length, nothing else.
//!
//! Lists are copied as they lie in memory, so that reading them back costs little more than a copy.

/// What is read is not what was written. It is caught by the checksum first; a bug is what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Collects bytes.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

/// Hands bytes out.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl Writer {
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
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
        self.0.extend(list.iter().flat_map(|item| bytes(*item)));
    }

    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub fn number(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// How many of something follow; each takes a byte at least, or there are few of them.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        const FEW: usize = 1 << 20;
        let count = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        if count <= self.0.len().max(FEW) { Ok(count) } else { Err(Malformed) }
    }

    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        let count = self.count()?;
        std::str::from_utf8(self.bytes(count)?).map_err(|_| Malformed)
    }

    pub fn list<const BYTES: usize, T>(
        &mut self,
        item: fn([u8; BYTES]) -> T,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.count()?;
        let bytes = self.bytes(count.checked_mul(BYTES).ok_or(Malformed)?)?;
        let (items, _) = bytes.as_chunks::<BYTES>();
        Ok(items.iter().map(|bytes| item(*bytes)).collect())
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
