//! What is added up over the numbers of many records.

/// A sum beyond this is kept in smaller units from then on, so that it never becomes infinite on the way: what came before
/// and what comes later may take it back, and an average is smaller in any case.
const SUM_MAX: f64 = f64::MAX / 4.0;
/// How much smaller these are: a power of two, which costs no digit, and more than there are numbers.
const SMALLER: f64 = 1.0 / 18_446_744_073_709_551_616.0;

/// Count, sum and extremes of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::log) struct Tally {
    pub count: u64,
    pub min: f64,
    pub max: f64,
    /// 1, or [`SMALLER`]: what numbers are multiplied by before they are added.
    scale: f64,
    sum: f64,
    /// What rounding took from the sum (Neumaier), so that the order of a million numbers does not matter.
    lost: f64,
}

impl Default for Tally {
    fn default() -> Self {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { count: 0, min, max, scale: 1.0, sum: 0.0, lost: 0.0 }
    }
}

impl Tally {
    /// Adds a number.
    pub fn add(&mut self, number: f64) {
        self.count += 1;
        self.min = self.min.min(number);
        self.max = self.max.max(number);
        self.add_scaled(number * self.scale);
    }

    fn add_scaled(&mut self, mut number: f64) {
        let mut sum = self.sum + number;
        if sum.abs() > SUM_MAX {
            self.scale_down();
            number *= SMALLER;
            sum = self.sum + number;
        }
        self.lost += if self.sum.abs() >= number.abs() {
            (self.sum - sum) + number
        } else {
            (number - sum) + self.sum
        };
        self.sum = sum;
    }

    #[cold]
    fn scale_down(&mut self) {
        self.scale *= SMALLER;
        self.sum *= SMALLER;
        self.lost *= SMALLER;
    }

    /// Adds what was added to `other`.
    pub fn merge(&mut self, other: &Self) {
        let mut other = *other;
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        while other.scale > self.scale {
            other.scale_down();
        }
        while self.scale > other.scale {
            self.scale_down();
        }
        // The sum may become too large only now.
        let scale = self.scale;
        self.add_scaled(other.sum);
        self.lost += other.lost * (self.scale / scale);
    }

    /// The mean of all; there is at least one.
    pub fn average(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count beyond 2^53 does not occur")]
        let count = self.count as f64;
        (self.sum + self.lost) / count / self.scale
    }

    /// The sum of all; infinite when no number is that large.
    pub fn sum(&self) -> f64 {
        (self.sum + self.lost) / self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(numbers: &[f64]) -> Tally {
        numbers.iter().fold(Tally::default(), |mut tally, number| {
            tally.add(*number);
            tally
        })
    }

    #[test]
    fn what_is_too_large_on_the_way_is_right_at_the_end() {
        let check = |numbers: &[f64], sum: f64, average: f64| {
            let turned: Vec<f64> = numbers.iter().rev().copied().collect();
            for numbers in [numbers, &turned] {
                for cut in 0..=numbers.len() {
                    let mut tally = of(&numbers[..cut]);
                    tally.merge(&of(&numbers[cut..]));
                    let found = [tally.sum(), tally.average()].map(f64::to_bits);
                    assert_eq!(found, [sum, average].map(f64::to_bits), "{numbers:?} at {cut}");
                    assert_eq!(tally.count, numbers.len() as u64);
                }
            }
        };
        let max = f64::MAX;
        check(&[1e308, 1e308], f64::INFINITY, 1e308);
        check(&[-1e308, -1e308, -1e308], f64::NEG_INFINITY, -1e308);
        check(&[max, max], f64::INFINITY, max);
        check(&[max], max, max);
        check(&[1e308, 1e308, -1e308], 1e308, 1e308 / 3.0);
        check(&[max, max, -max, -max, 8.0], 8.0, 1.6);
        check(&[max, 1.0, max, -max, 2.0, -max], 3.0, 0.5);
    }

    proptest! {
        /// Numbers whose sums are exact in any order, so that there is one answer.
        #[test]
        fn order_and_cuts_do_not_matter(
            numbers in prop::collection::vec(-40i32..40, 1..40), exponent in 900i32..=1018,
            cut in any::<prop::sample::Index>(),
        ) {
            let unit = 2f64.powi(exponent);
            let numbers: Vec<f64> = numbers.iter().map(|number| f64::from(*number) * unit).collect();
            let mut sorted = numbers.clone();
            sorted.sort_by(f64::total_cmp);
            let sorted = of(&sorted);
            let (before, after) = numbers.split_at(cut.index(numbers.len()));
            let mut tally = of(before);
            tally.merge(&of(after));
            prop_assert_eq!(tally.sum().to_bits(), sorted.sum().to_bits());
            prop_assert_eq!(tally.average().to_bits(), sorted.average().to_bits());
        }
    }
}
