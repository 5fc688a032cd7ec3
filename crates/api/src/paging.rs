//! Pages of lists and the headers that lead from one to the next (wire, section 4).

use crate::parameters::Parameters;
use crate::problem::Failure;

/// Items on a page when nothing is said.
pub const PER_PAGE_DEFAULT: u64 = 30;
/// Items on a page at most; clients of the predecessor get no more than they expect when they say nothing.
pub const PER_PAGE_MAX: u64 = 1000;

/// Which page is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    /// The page, from 1.
    pub page: u64,
    /// How many items it holds.
    pub per_page: u64,
}

impl Paging {
    /// Reads `page` and `per_page`; what is out of bounds is brought back, what is no number is refused.
    pub fn read(parameters: &Parameters, per_page_max: u64) -> Result<Self, Failure> {
        let positive = |name: &str, default: u64| -> Result<u64, Failure> {
            let number = parameters.number(name)?;
            Ok(number
                .and_then(|number| u64::try_from(number).ok())
                .filter(|number| *number > 0)
                .unwrap_or(default))
        };
        let per_page = positive("per_page", PER_PAGE_DEFAULT)?.min(per_page_max);
        Ok(Self { page: positive("page", 1)?, per_page })
    }

    /// The items of this page.
    pub fn slice<T>(self, items: impl Iterator<Item = T>) -> Vec<T> {
        let skipped = (self.page - 1).saturating_mul(self.per_page);
        match (usize::try_from(skipped), usize::try_from(self.per_page)) {
            (Ok(skipped), Ok(per_page)) => items.skip(skipped).take(per_page).collect(),
            _ => Vec::new(),
        }
    }

    /// The value of `Link` for a list of `total` items. `address` is the address asked for without its query; the
    /// parts of `query` other than page and size are kept as they were written.
    pub fn links(self, address: &str, query: &str, total: u64) -> String {
        let last = total.div_ceil(self.per_page).max(1);
        let previous = self.page.saturating_sub(1).clamp(1, last);
        let next = self.page.saturating_add(1).min(last);
        let kept = query.split('&').filter(|part| is_other(part)).flat_map(|part| [part, "&"]);
        let kept: String = kept.collect();
        let link = |relation: &str, page: u64| {
            format!("<{address}?{kept}per_page={}&page={page}>; rel={relation}", self.per_page)
        };
        [link("first", 1), link("prev", previous), link("next", next), link("last", last)]
            .join(", ")
    }
}

/// Whether a part of a query is neither page nor size, however its name is encoded.
fn is_other(part: &str) -> bool {
    let pairs = Parameters::parse(part).unwrap_or_default();
    !part.is_empty() && pairs.first("page").is_none() && pairs.first("per_page").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Option<(u64, u64)> {
        Paging::read(&Parameters::parse(query).unwrap(), PER_PAGE_MAX)
            .ok()
            .map(|paging| (paging.page, paging.per_page))
    }

    #[test]
    fn pages_asked_for() {
        let check = |query: &str, expected: Option<(u64, u64)>| {
            assert_eq!(read(query), expected, "{query}");
        };
        check("", Some((1, 30)));
        check("page=2&per_page=20", Some((2, 20)));
        check("page=0&per_page=0", Some((1, 30)));
        check("page=-3&per_page=-1", Some((1, 30)));
        check("per_page=1001", Some((1, 1000)));
        check("per_page=99999999999999999999", Some((1, 1000)));
        check("page=x", None);
        check("per_page=", None);
        check("page=1.5", None);
    }

    #[test]
    fn links_lead_to_all_pages() {
        let check = |query: &str, total: u64, pages: [u64; 4]| {
            let paging = Paging::read(&Parameters::parse(query).unwrap(), PER_PAGE_MAX).unwrap();
            let links = paging.links("http://h:1/api/v1/breeds", "", total);
            let link = |page: u64, relation: &str| {
                format!(
                    "<http://h:1/api/v1/breeds?per_page={}&page={page}>; rel={relation}",
                    paging.per_page
                )
            };
            let [first, previous, next, last] = pages;
            let expected = [
                link(first, "first"),
                link(previous, "prev"),
                link(next, "next"),
                link(last, "last"),
            ];
            assert_eq!(links, expected.join(", "));
        };
        check("per_page=20", 45, [1, 1, 2, 3]);
        check("per_page=20&page=2", 45, [1, 1, 3, 3]);
        check("per_page=20&page=3", 45, [1, 2, 3, 3]);
        check("per_page=20&page=9", 45, [1, 3, 3, 3]);
        check("", 0, [1, 1, 1, 1]);
        check("", 30, [1, 1, 1, 1]);
        check("", 31, [1, 1, 2, 2]);
    }

    #[test]
    fn links_keep_the_other_parameters_as_written() {
        let paging = Paging { page: 1, per_page: 30 };
        let query = "tag=a%26b&page=4&tag=c%20d&pa%67e=3&x&per_page=9&type=%C3%A9";
        let links = paging.links("http://h/api/v1/events", query, 0);
        let first = "<http://h/api/v1/events?tag=a%26b&tag=c%20d&x&type=%C3%A9&per_page=30&page=1>; rel=first";
        assert_eq!(links.split(", ").next(), Some(first));
    }

    #[test]
    fn a_page_past_the_end_is_empty() {
        let slice = |page: u64| Paging { page, per_page: 2 }.slice(1..=5);
        assert_eq!(slice(1), [1, 2]);
        assert_eq!(slice(3), [5]);
        assert!(slice(4).is_empty());
        assert!(slice(u64::MAX).is_empty());
    }
}
