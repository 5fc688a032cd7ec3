//! The normal form of conditions: alternatives of tests that all have to hold, as few and as short as can be.
//!
//! Alternatives are multiplied out within limits. Up to [`MINIMISED_OPERANDS_MAX`] different tests the result is
//! minimised by the method of Quine and `McCluskey`; beyond that alternatives that another one covers are left out.

use super::{Expression, Operand};
use std::collections::HashSet;

/// How many different tests a condition may have.
pub const OPERANDS_MAX: usize = 64;
/// How many alternatives a condition may have when it is written without parentheses.
pub const TERMS_MAX: usize = 256;
/// How many tests may have to hold together.
pub const LITERALS_MAX: usize = 48;
/// Up to so many tests the normal form is the shortest one.
const MINIMISED_OPERANDS_MAX: usize = 8;
/// How many pairs of alternatives are multiplied at most.
const PRODUCTS_MAX: usize = 100_000;
/// How many choices are looked at in search of the shortest form; after that the best one found is taken.
const CHOICES_MAX: usize = 2_000;

/// A test that has to hold, or must not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Literal {
    /// The test; a user agent is what is looked for, short names replaced.
    pub operand: Operand,
    /// Whether it must not hold.
    pub negated: bool,
}

/// A condition that is too large for a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// See [`OPERANDS_MAX`].
    #[error("the condition has more than {OPERANDS_MAX} different tests")]
    Operands,
    /// See [`TERMS_MAX`].
    #[error("without parentheses the condition has more than {TERMS_MAX} alternatives")]
    Terms,
    /// See [`LITERALS_MAX`].
    #[error("more than {LITERALS_MAX} tests of the condition have to hold together")]
    Literals,
}

impl Expression {
    /// Alternatives of tests that all have to hold, logically equal to this.
    pub fn normal_form(&self) -> Result<Vec<Vec<Literal>>, TooLarge> {
        let mut builder = Builder { operands: Vec::new(), products: 0 };
        let cubes = builder.cubes(self, false)?;
        let mut cubes = minimised(cubes);
        let literals = |cube: &Cube| cube.literals().collect::<Vec<_>>();
        cubes.sort_by_key(literals);
        if cubes.iter().any(|cube| cube.size() > LITERALS_MAX) {
            return Err(TooLarge::Literals);
        }
        let literal = |(index, negated): (usize, bool)| Literal {
            operand: builder.operands[index].clone(),
            negated,
        };
        Ok(cubes.iter().map(|cube| cube.literals().map(literal).collect()).collect())
    }
}

/// Tests that all have to hold; bits are indices of operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Cube {
    yes: u64,
    no: u64,
}

impl Cube {
    /// Both, or `None` when they contradict each other.
    fn and(self, other: Self) -> Option<Self> {
        let cube = Self { yes: self.yes | other.yes, no: self.no | other.no };
        (cube.yes & cube.no == 0).then_some(cube)
    }

    /// Whether this holds whenever `other` does.
    fn covers(self, other: Self) -> bool {
        self.yes & !other.yes == 0 && self.no & !other.no == 0
    }

    fn size(self) -> usize {
        (self.yes | self.no).count_ones() as usize
    }

    /// Indices of operands in order, and whether each is negated.
    fn literals(self) -> impl Iterator<Item = (usize, bool)> {
        let used = move |index: &usize| (self.yes | self.no) >> index & 1 == 1;
        (0..OPERANDS_MAX).filter(used).map(move |index| (index, self.no >> index & 1 == 1))
    }
}

struct Builder {
    /// In order of first appearance.
    operands: Vec<Operand>,
    products: usize,
}

impl Builder {
    fn cubes(&mut self, expression: &Expression, negated: bool) -> Result<Vec<Cube>, TooLarge> {
        match (expression, negated) {
            (Expression::Not(inner), _) => self.cubes(inner, !negated),
            (Expression::Operand(operand), _) => self.operand(operand, negated),
            (Expression::And(parts), false) | (Expression::Or(parts), true) => {
                let mut product = vec![Cube::default()];
                for part in parts {
                    let factor = self.cubes(part, negated)?;
                    product = self.product(&product, &factor)?;
                }
                Ok(product)
            }
            (Expression::Or(parts), false) | (Expression::And(parts), true) => {
                let mut sum = Vec::new();
                for part in parts {
                    for cube in self.cubes(part, negated)? {
                        add(&mut sum, cube)?;
                    }
                }
                Ok(sum)
            }
        }
    }

    fn operand(&mut self, operand: &Operand, negated: bool) -> Result<Vec<Cube>, TooLarge> {
        let bits: Vec<u64> = match operand {
            Operand::UserAgent(name) => {
                let words = user_agent(name).into_iter();
                words.map(|word| self.bit(Operand::UserAgent(word))).collect::<Result<_, _>>()?
            }
            Operand::Host(_)
            | Operand::Header(_)
            | Operand::Cookie(_)
            | Operand::HeaderContains(..)
            | Operand::CookieContains(..)
            | Operand::Raw(_) => vec![self.bit(operand.clone())?],
        };
        Ok(if negated {
            bits.into_iter().map(|no| Cube { yes: 0, no }).collect()
        } else {
            vec![Cube { yes: bits.into_iter().fold(0, |all, bit| all | bit), no: 0 }]
        })
    }

    fn bit(&mut self, operand: Operand) -> Result<u64, TooLarge> {
        let known = self.operands.iter().position(|known| *known == operand);
        let index = known.unwrap_or_else(|| {
            self.operands.push(operand);
            self.operands.len() - 1
        });
        if index < OPERANDS_MAX { Ok(1 << index) } else { Err(TooLarge::Operands) }
    }

    fn product(&mut self, left: &[Cube], right: &[Cube]) -> Result<Vec<Cube>, TooLarge> {
        self.products += left.len() * right.len();
        if self.products > PRODUCTS_MAX {
            return Err(TooLarge::Terms);
        }
        let mut product = Vec::new();
        for one in left {
            for cube in right.iter().filter_map(|other| one.and(*other)) {
                add(&mut product, cube)?;
            }
        }
        Ok(product)
    }
}

/// What a short name of a user agent stands for: words that it calls itself, all of them.
fn user_agent(name: &str) -> Vec<String> {
    const KNOWN: [(&str, &[&str]); 5] = [
        ("Chrome", &["Chrome"]),
        ("Firefox", &["Firefox"]),
        ("Edge", &["Edge"]),
        ("IE", &["MSIE"]),
        // Others call themselves Safari, too, but give no version of it.
        ("Safari", &["Safari", "Version"]),
    ];
    let known = KNOWN.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map_or_else(
        || vec![name.to_owned()],
        |(_, words)| words.iter().map(|word| (*word).to_owned()).collect(),
    )
}

/// Adds an alternative, unless one covers it; leaves out those that it covers.
fn add(cubes: &mut Vec<Cube>, cube: Cube) -> Result<(), TooLarge> {
    if cubes.iter().any(|known| known.covers(cube)) {
        return Ok(());
    }
    cubes.retain(|known| !cube.covers(*known));
    cubes.push(cube);
    if cubes.len() <= TERMS_MAX { Ok(()) } else { Err(TooLarge::Terms) }
}

/// The shortest equal form when there are few operands, else `cubes` as they are.
fn minimised(cubes: Vec<Cube>) -> Vec<Cube> {
    let used = cubes.iter().fold(0, |used, cube| used | cube.yes | cube.no);
    let indices: Vec<usize> = (0..OPERANDS_MAX).filter(|index| used >> index & 1 == 1).collect();
    if cubes.len() < 2 || indices.len() > MINIMISED_OPERANDS_MAX {
        return cubes;
    }
    // The operands that are used, as the low bits.
    let low = |bits: u64| {
        let bit = |(low, index): (usize, &usize)| (bits >> index & 1) << low;
        indices.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
    };
    let high = |bits: u64| {
        let bit = |(low, index): (usize, &usize)| (bits >> low & 1) << index;
        indices.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
    };
    let narrow: Vec<Cube> =
        cubes.iter().map(|cube| Cube { yes: low(cube.yes), no: low(cube.no) }).collect();
    let holds = |row: u64| narrow.iter().any(|cube| cube.yes & !row == 0 && cube.no & row == 0);
    let rows: Vec<u64> = (0..1 << indices.len()).filter(|row| holds(*row)).collect();
    let primes = primes(&rows, indices.len());
    let cover = Cover::of(&rows, &primes);
    cover.into_iter().map(|cube| Cube { yes: high(cube.yes), no: high(cube.no) }).collect()
}

/// All prime implicants of the function that holds for `rows`.
fn primes(rows: &[u64], width: usize) -> Vec<Cube> {
    let all = (1_u64 << width) - 1;
    let mut level: HashSet<Cube> =
        rows.iter().map(|row| Cube { yes: *row, no: !row & all }).collect();
    let mut primes = Vec::new();
    while !level.is_empty() {
        let mut next = HashSet::new();
        for cube in &level {
            let mut is_prime = true;
            for bit in (0..width).map(|index| 1_u64 << index) {
                if (cube.yes | cube.no) & bit == 0 {
                    continue;
                }
                let partner = Cube { yes: cube.yes ^ bit, no: cube.no ^ bit };
                if level.contains(&partner) {
                    is_prime = false;
                    next.insert(Cube { yes: cube.yes & !bit, no: cube.no & !bit });
                }
            }
            if is_prime {
                primes.push(*cube);
            }
        }
        level = next;
    }
    // Sets have no order, and the same condition is to give the same form always.
    primes.sort_by_key(|cube| (cube.size(), cube.yes, cube.no));
    primes
}

/// The search for the fewest and shortest primes that cover all rows.
struct Cover<'a> {
    /// Which primes cover each row.
    choices: Vec<Vec<usize>>,
    primes: &'a [Cube],
    chosen: Vec<usize>,
    best: Vec<usize>,
    budget: usize,
}

impl<'a> Cover<'a> {
    fn of(rows: &[u64], primes: &'a [Cube]) -> Vec<Cube> {
        let covering = |row: &u64| {
            let covers = |(_, cube): &(usize, &Cube)| cube.yes & !row == 0 && cube.no & row == 0;
            primes.iter().enumerate().filter(covers).map(|(index, _)| index).collect()
        };
        let choices = rows.iter().map(covering).collect();
        let mut cover =
            Self { choices, primes, chosen: Vec::new(), best: Vec::new(), budget: CHOICES_MAX };
        cover.best = cover.greedy();
        cover.search();
        cover.best.iter().map(|index| primes[*index]).collect()
    }

    fn cost(&self, chosen: &[usize]) -> (usize, usize) {
        (chosen.len(), chosen.iter().map(|index| self.primes[*index].size()).sum())
    }

    fn open(&self, chosen: &[usize]) -> impl Iterator<Item = &Vec<usize>> {
        self.choices.iter().filter(|choices| !choices.iter().any(|index| chosen.contains(index)))
    }

    /// At each step the prime that covers the most open rows.
    fn greedy(&self) -> Vec<usize> {
        let mut chosen = Vec::new();
        loop {
            let mut counts = vec![0_usize; self.primes.len()];
            for choices in self.open(&chosen) {
                for index in choices {
                    counts[*index] += 1;
                }
            }
            let best = (0..counts.len()).max_by_key(|index| {
                (counts[*index], std::cmp::Reverse((self.primes[*index].size(), *index)))
            });
            match best.filter(|index| counts[*index] > 0) {
                Some(index) => chosen.push(index),
                None => return chosen,
            }
        }
    }

    /// Tries every prime for the row that leaves the fewest choices; gives up where it cannot get better.
    fn search(&mut self) {
        if self.budget == 0 {
            return;
        }
        self.budget -= 1;
        let Some(choices) = self.open(&self.chosen).min_by_key(|choices| choices.len()).cloned()
        else {
            if self.cost(&self.chosen) < self.cost(&self.best) {
                self.best.clone_from(&self.chosen);
            }
            return;
        };
        // One more is needed; that has to be fewer than the best, or as many with fewer tests.
        if self.chosen.len() + 1 > self.best.len() {
            return;
        }
        for index in choices {
            self.chosen.push(index);
            self.search();
            self.chosen.pop();
        }
    }
}
