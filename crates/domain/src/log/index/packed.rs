//! Whole numbers in few bytes: in chunks, each with its least number and the differences to that.
//!
//! Timestamps of neighbours differ little, so a nanosecond timestamp takes four bytes or so instead of sixteen.

use super::bytes::{Malformed, Reader, Writer};

const CHUNK: usize = 128;
/// An `i128` in bytes.
const WIDTH_MAX: usize = 16;

/// A list of whole numbers that does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    len: usize,
    chunks: Vec<Chunk>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chunk {
    least: i128,
    /// Where the differences begin, and how many bytes each takes.
    start: u32,
    width: u8,
}

impl Packed {
    /// Packs `numbers`, at most what a segment has.
    pub fn new(numbers: &[i128]) -> Self {
        let mut packed = Self { len: numbers.len(), ..Self::default() };
        for chunk in numbers.chunks(CHUNK) {
            let least = chunk.iter().copied().min().unwrap_or_default();
            let greatest = chunk.iter().copied().max().unwrap_or_default();
            let difference = |number: i128| number.wrapping_sub(least).cast_unsigned();
            let width = (u128::BITS - difference(greatest).leading_zeros()).div_ceil(8);
            let start = u32::try_from(packed.bytes.len()).expect("a segment has few numbers");
            let width = u8::try_from(width).expect("a number has sixteen bytes");
            for number in chunk {
                let bytes = difference(*number).to_le_bytes();
                packed.bytes.extend_from_slice(&bytes[..usize::from(width)]);
            }
            packed.chunks.push(Chunk { least, start, width });
        }
        packed.chunks.shrink_to_fit();
        packed.bytes.shrink_to_fit();
        packed
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number at `index`, which is less than [`Packed::len`].
    pub fn get(&self, index: usize) -> i128 {
        let Chunk { least, start, width } = self.chunks[index / CHUNK];
        let width = usize::from(width);
        let from = start as usize + index % CHUNK * width;
        // Most take at most eight bytes, which are read at once where there are as many behind.
        if width <= 8
            && let Some(eight) = self.bytes.get(from..from + 8)
        {
            let number = u64::from_le_bytes(eight.try_into().expect("eight bytes are eight"));
            let unused = 64 - 8 * u32::try_from(width).expect("a width is small");
            let difference = number.checked_shl(unused).map_or(0, |number| number >> unused);
            return least.wrapping_add(i128::from(difference));
        }
        let mut bytes = [0; WIDTH_MAX];
        bytes[..width].copy_from_slice(&self.bytes[from..from + width]);
        least.wrapping_add(u128::from_le_bytes(bytes).cast_signed())
    }

    /// How many numbers from the start are as `is_before` says, when these come first.
    pub fn partition_point(&self, is_before: impl Fn(i128) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low.midpoint(high);
            if is_before(self.get(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    pub fn write(&self, writer: &mut Writer<'_>) {
        writer.count(self.len);
        for chunk in &self.chunks {
            writer.bytes(&chunk.least.to_le_bytes());
            writer.bytes(&[chunk.width]);
        }
        writer.count(self.bytes.len());
        writer.bytes(&self.bytes);
    }

    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let len = reader.count()?;
        let (mut chunks, mut start) = (Vec::new(), 0usize);
        for chunk in 0..len.div_ceil(CHUNK) {
            let least = i128::from_le_bytes(reader.array()?);
            let [width] = reader.array()?;
            if usize::from(width) > WIDTH_MAX {
                return Err(Malformed);
            }
            chunks.push(Chunk {
                least,
                start: u32::try_from(start).map_err(|_| Malformed)?,
                width,
            });
            start += usize::from(width) * (len - chunk * CHUNK).min(CHUNK);
        }
        let bytes = reader.count()?;
        let bytes = reader.bytes(bytes)?;
        if bytes.len() == start { Ok(Self { len, chunks, bytes }) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = i128> {
        prop_oneof![
            Just(i128::MIN),
            Just(i128::MAX),
            any::<i128>(),
            -300i128..300,
            any::<i64>().prop_map(i128::from)
        ]
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(numbers in prop::collection::vec(number(), 0..400), small in any::<bool>()) {
            let numbers: Vec<_> = numbers.into_iter().map(|number| if small { number % 70_000 } else { number }).collect();
            let packed = Packed::new(&numbers);
            let unpacked: Vec<_> = (0..packed.len()).map(|index| packed.get(index)).collect();
            prop_assert_eq!(&unpacked, &numbers);
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes);
            packed.write(&mut writer);
            writer.finish().unwrap();
            prop_assert_eq!(Packed::read(&mut Reader::new(&mut &bytes[..], bytes.len())).unwrap(), packed);
        }
    }

    #[test]
    fn equal_numbers_take_no_bytes_and_neighbours_few() {
        assert_eq!(Packed::new(&[1 << 90; 100]).bytes.len(), 0);
        let seconds: Vec<i128> =
            (0..128).map(|n| 1_700_000_000_000_000_000 + n * 30_000_000).collect();
        assert_eq!(Packed::new(&seconds).bytes.len(), 128 * 4);
    }
}
