//! What is added up over the numbers of many records.

/// Count, sum and extremes of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::log) struct Tally {
    pub count: u64,
    pub min: f64,
    pub max: f64,
    sum: f64,
    /// What rounding took from the sum (Neumaier), so that the order of a million numbers does not matter.
    lost: f64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { count: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, sum: 0.0, lost: 0.0 }
    }
}

impl Tally {
    /// Adds a number.
    pub fn add(&mut self, number: f64) {
        self.count += 1;
        self.min = self.min.min(number);
        self.max = self.max.max(number);
        let sum = self.sum + number;
        self.lost += if self.sum.abs() >= number.abs() {
            (self.sum - sum) + number
        } else {
            (number - sum) + self.sum
        };
        self.sum = sum;
    }

    /// Adds what was added to `other`.
    pub fn merge(&mut self, other: &Self) {
        let (count, min, max) =
            (self.count + other.count, self.min.min(other.min), self.max.max(other.max));
        self.add(other.sum);
        self.lost += other.lost;
        (self.count, self.min, self.max) = (count, min, max);
    }

    /// The mean of all; there is at least one.
    pub fn average(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count beyond 2^53 does not occur")]
        let count = self.count as f64;
        self.sum() / count
    }

    /// The sum of all.
    pub fn sum(&self) -> f64 {
        if self.sum.is_finite() { self.sum + self.lost } else { self.sum }
    }
}
