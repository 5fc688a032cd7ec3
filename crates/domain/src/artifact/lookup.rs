//! Lookup names: short, stable identifiers for things whose names are long.

use super::RoutePath;
use sha1::{Digest, Sha1};
use std::fmt::Write;

/// What a lookup name is made for; the text is part of the formula (runtime, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupClass {
    /// A deployment.
    Deployment,
    /// A gateway or a route inside one.
    Gateway,
    /// A stored route.
    Route,
    /// A breed.
    Breed,
    /// A reference to a breed.
    BreedReference,
    /// A target that Segue runs.
    InternalTarget,
    /// A target outside.
    ExternalTarget,
}

impl LookupClass {
    fn text(self) -> &'static str {
        match self {
            LookupClass::Deployment => "Deployment",
            LookupClass::Gateway => "Gateway",
            LookupClass::Route => "DefaultRoute",
            LookupClass::Breed => "DefaultBreed",
            LookupClass::BreedReference => "BreedReference",
            LookupClass::InternalTarget => "InternalRouteTarget",
            LookupClass::ExternalTarget => "ExternalRouteTarget",
        }
    }
}

/// The lookup name of `name`: SHA-1 in lower-case hex, printed as a number, so without leading zeros.
pub fn lookup_name(class: LookupClass, name: &str) -> String {
    hex_number(&format!("class io.vamp.model.artifact.{}@{name}v1", class.text()))
}

/// The lookup name of the route `path` of the gateway `gateway`, whose name is empty when it is anonymous. The gateway's
/// name counts as one of four segments, and the path is filled up to four.
pub fn route_lookup_name(gateway: &str, path: &RoutePath) -> String {
    let missing = 4_usize.saturating_sub(path.segments().len());
    lookup_name(
        LookupClass::Gateway,
        &format!("{gateway}/*/*/*/{}{}", path.as_str(), "/*".repeat(missing)),
    )
}

/// The short hash of `text`, in the same form.
pub fn short_hash(text: &str) -> String {
    hex_number(&format!("{text}0000"))
}

fn hex_number(text: &str) -> String {
    let mut digits = String::new();
    for byte in Sha1::digest(text.as_bytes()) {
        let _ = write!(digits, "{byte:02x}");
    }
    match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        number => number.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_lookup_names() {
        for (class, name, expected) in [
            (LookupClass::Deployment, "shop", "478a38bf1196276c4a57526b8d072e2926f40637"),
            (LookupClass::Gateway, "shop/9080", "51aa837b7c2a2c0738d7d1acac6366f7d416718e"),
            (LookupClass::Gateway, "g3", "bedb7dd4dcf0cb30b20979e0551ef8e1694f0a1"),
            (
                LookupClass::Gateway,
                "shop/web/http/*/*/*/shop/web/web:1/http",
                "a4c1fa68822c98692eba08f67fd2c4de683d7daa",
            ),
        ] {
            assert_eq!(lookup_name(class, name), expected);
        }
        let path = RoutePath::of(["shop", "web", "web:1", "http"]);
        assert_eq!(
            route_lookup_name("shop/web/http", &path),
            "a4c1fa68822c98692eba08f67fd2c4de683d7daa"
        );
        let expected = lookup_name(LookupClass::Gateway, "/*/*/*/a/b/*/*");
        assert_eq!(route_lookup_name("", &RoutePath::of(["a", "b"])), expected);
        assert!(short_hash("hdr_sub(user-agent) Firefox").starts_with("af31629d4c4c8e71"));
    }
}
