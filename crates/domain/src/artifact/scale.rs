//! How much of a service runs, and the units in which that is said.

use super::Metadata;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// How much of a service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scale {
    /// Processor share of one instance.
    pub cpu: Cpu,
    /// Memory of one instance.
    pub memory: Memory,
    /// How many instances run.
    pub instances: u32,
}

/// A scale that is stored under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedScale {
    /// The general name.
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// The scale.
    pub scale: Scale,
}

/// A scale as a blueprint gives it: by name, or in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleReference {
    /// The name of a stored scale.
    Reference(String),
    /// A scale written in place.
    Inline(Scale),
}

/// A text that is no quantity of the unit expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no {expected}")]
pub struct UnitError {
    /// The text as given.
    pub text: String,
    /// What was expected, with an example.
    pub expected: &'static str,
}

/// Processor share in thousandths of one core; never negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cpu {
    milli: u64,
}

impl Cpu {
    /// A share of `milli` thousandths of a core, rounded half-up to hundredths: what is kept is what documents print, so
    /// that who sends back what was read changes nothing. Of more than nothing a hundredth is left at least, since nothing
    /// stands for no limit.
    pub const fn from_milli(milli: u64) -> Self {
        let hundredths = milli.saturating_add(5) / 10;
        Self { milli: if milli > 0 && hundredths == 0 { 10 } else { hundredths * 10 } }
    }

    /// Thousandths of a core.
    pub const fn milli(self) -> u64 {
        self.milli
    }

    /// Cores, as documents print it: with 2 decimals.
    #[expect(clippy::cast_precision_loss, reason = "hundredths of a core stay far below 2^53")]
    pub fn cores(self) -> f64 {
        ((self.milli + 5) / 10) as f64 / 100.0
    }
}

impl FromStr for Cpu {
    type Err = UnitError;

    /// Reads `2`, `0.5`, `.5` or `250m`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked before the cast"
    )]
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error =
            || UnitError { text: text.to_owned(), expected: "cpu quantity, such as 0.5 or 500m" };
        let (number, factor) = match text.trim().strip_suffix('m') {
            Some(number) => (number.trim_end(), 1.0),
            None => (text.trim(), 1000.0),
        };
        // A fraction of a thousandth is more than nothing, too.
        let milli = decimal(number).ok_or_else(error)? * factor;
        let milli = if milli > 0.0 { milli.round().max(1.0) } else { milli };
        if (0.0..1e15).contains(&milli) { Ok(Self::from_milli(milli as u64)) } else { Err(error()) }
    }
}

const BYTES_PER_MEGABYTE: u64 = 1024 * 1024;

/// An amount of memory, kept in hundredths of a megabyte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Memory {
    centi_megabytes: u64,
}

impl Memory {
    /// An amount of whole megabytes.
    pub const fn from_megabytes(megabytes: u64) -> Self {
        Self { centi_megabytes: megabytes.saturating_mul(100) }
    }

    /// An amount of hundredths of a megabyte.
    pub const fn from_centi_megabytes(centi_megabytes: u64) -> Self {
        Self { centi_megabytes }
    }

    /// Hundredths of a megabyte.
    pub const fn centi_megabytes(self) -> u64 {
        self.centi_megabytes
    }

    /// Bytes, where 1 MB is 1024 × 1024 bytes.
    pub const fn bytes(self) -> u64 {
        let (whole, hundredths) = (self.centi_megabytes / 100, self.centi_megabytes % 100);
        whole
            .saturating_mul(BYTES_PER_MEGABYTE)
            .saturating_add(hundredths * BYTES_PER_MEGABYTE / 100)
    }
}

/// The form of documents, `64.00MB`.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}MB", self.centi_megabytes / 100, self.centi_megabytes % 100)
    }
}

impl FromStr for Memory {
    type Err = UnitError;

    /// Reads a number followed by `M`, `MB`, `Mi`, `G` or `GB` in any letter case; 1 GB is 1024 MB.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked before the cast"
    )]
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError {
            text: text.to_owned(),
            expected: "amount of memory, such as 512MB or 1.5GB",
        };
        let text_lower = text.trim().to_ascii_lowercase();
        let (number, factor) =
            [("mb", 1.0), ("mi", 1.0), ("gb", 1024.0), ("m", 1.0), ("g", 1024.0)]
                .iter()
                .find_map(|(unit, factor)| Some((text_lower.strip_suffix(unit)?, factor)))
                .ok_or_else(error)?;
        let centi = (decimal(number.trim_end()).ok_or_else(error)? * factor * 100.0).round();
        if (0.0..1e15).contains(&centi) {
            Ok(Self { centi_megabytes: centi as u64 })
        } else {
            Err(error())
        }
    }
}

/// A whole percentage, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Percentage(u8);

impl Percentage {
    /// 0 %.
    pub const ZERO: Self = Self(0);
    /// 100 %.
    pub const HUNDRED: Self = Self(100);

    /// The percentage `value`, or `None` above 100.
    pub const fn new(value: u8) -> Option<Self> {
        if value <= 100 { Some(Self(value)) } else { None }
    }

    /// The number, 0 to 100.
    pub const fn value(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Percentage {
    type Error = UnitError;

    fn try_from(value: u8) -> Result<Self, UnitError> {
        Self::new(value).ok_or_else(|| UnitError { text: value.to_string(), expected: PERCENTAGE })
    }
}

impl From<Percentage> for u8 {
    fn from(percentage: Percentage) -> u8 {
        percentage.0
    }
}

/// The form of documents, `50%`.
impl fmt::Display for Percentage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl FromStr for Percentage {
    type Err = UnitError;

    /// Reads 1 to 3 digits, optional blanks and `%`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError { text: text.to_owned(), expected: PERCENTAGE };
        let digits = text.trim().strip_suffix('%').ok_or_else(error)?.trim_end();
        if digits.is_empty() || digits.len() > 3 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(error());
        }
        digits.parse().ok().and_then(Self::new).ok_or_else(error)
    }
}

const PERCENTAGE: &str = "percentage, a whole number from 0% to 100%";

/// Reads a plain decimal such as `2`, `.5`, `64.` or `1e3`; no sign, no blanks, no special values.
fn decimal(text: &str) -> Option<f64> {
    let starts_well = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let plain =
        text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if starts_well && plain { text.parse().ok().filter(|n: &f64| n.is_finite()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_quantities() {
        for (text, milli) in
            [("2", 2000), ("0.5", 500), (".5", 500), ("250m", 250), ("250 m", 250), ("1e1", 10_000)]
        {
            assert_eq!(text.parse(), Ok(Cpu::from_milli(milli)), "{text}");
        }
        for text in ["", "-1", "x", "1k", "inf", "NaN", "1,5", "1 2"] {
            assert!(text.parse::<Cpu>().is_err(), "{text}");
        }
        for (text, cores) in [
            ("385m", 0.39),
            ("384m", 0.38),
            ("1.255", 1.26),
            ("4m", 0.01),
            ("0.0001", 0.01),
            ("0", 0.0),
        ] {
            let cpu: Cpu = text.parse().unwrap();
            assert!((cpu.cores() - cores).abs() < 1e-9, "{text}");
            assert_eq!(cpu.cores().to_string().parse(), Ok(cpu), "{text}");
        }
    }

    #[test]
    fn memory_amounts() {
        for (text, printed) in [
            ("64MB", "64.00MB"),
            ("64 mb", "64.00MB"),
            ("64.MB", "64.00MB"),
            (".5GB", "512.00MB"),
            ("1e3MB", "1000.00MB"),
            ("64Mi", "64.00MB"),
            ("1.5g", "1536.00MB"),
        ] {
            assert_eq!(
                text.parse::<Memory>().map(|m| m.to_string()),
                Ok(printed.to_owned()),
                "{text}"
            );
        }
        for text in ["64", "64KB", "1TB", "1Gi", "-1MB", "1,5GB", "MB", ""] {
            assert!(text.parse::<Memory>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_of_memory() {
        for (text, bytes) in [
            ("64MB", 64 << 20),
            ("0.5MB", 1 << 19),
            ("0.01MB", 10_485),
            ("9999999999999.99MB", 9_999_999_999_999 * (1 << 20) + 1_038_090),
            ("1e13MB", 0),
        ] {
            assert_eq!(text.parse().map_or(0, Memory::bytes), bytes, "{text}");
        }
        assert_eq!(Memory::from_centi_megabytes(u64::MAX).bytes(), u64::MAX);
        assert_eq!(Memory::from_megabytes(u64::MAX).bytes(), u64::MAX);
    }

    #[test]
    fn percentages() {
        for (text, value) in [("0%", 0), ("50 %", 50), ("100%", 100)] {
            assert_eq!(text.parse::<Percentage>().map(Percentage::value), Ok(value), "{text}");
        }
        for text in ["100", "99.5%", "101%", "-1%", "%", "1000%", "abc%"] {
            assert!(text.parse::<Percentage>().is_err(), "{text}");
        }
    }
}
