//! Registries: which one an image comes from, who asks there, and what their refusals mean. Pure.

use crate::driver::Error;
use bollard::auth::DockerCredentials;
use serde::Deserialize;
use std::fmt;

/// The registry of images that name none.
const DOCKER_HUB: &str = "docker.io";
/// Its other names.
const DOCKER_HUB_ALIASES: [&str; 2] = ["index.docker.io", "registry-1.docker.io"];

/// Who asks at one registry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// Host and, if it is not the usual one, port, as images name it; `docker.io` for images that name none.
    pub address: String,
    /// The user.
    pub username: String,
    /// The password, or a token that stands for one.
    pub password: Secret,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// What the registry of `image` is told about who asks; `None` where nobody is named for it.
pub(super) fn credentials(registries: &[Registry], image: &str) -> Option<DockerCredentials> {
    let host = host_of(image);
    let registry = registries.iter().find(|registry| plain(&registry.address) == host)?;
    Some(DockerCredentials {
        username: Some(registry.username.clone()),
        password: Some(registry.password.0.clone()),
        serveraddress: Some(host.to_owned()),
        ..DockerCredentials::default()
    })
}

/// The registry that `image` names: the first part, when it cannot be that of a repository.
fn host_of(image: &str) -> &str {
    match image.trim().split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => plain(first),
        _ => DOCKER_HUB,
    }
}

/// An address without what people copy along with it.
fn plain(address: &str) -> &str {
    let address = address.trim();
    let bare = address.split_once("://").map_or(address, |(_, bare)| bare);
    let host = bare.split('/').next().unwrap_or(bare);
    if DOCKER_HUB_ALIASES.contains(&host) { DOCKER_HUB } else { host }
}

/// Why an image cannot be pulled, from what the daemon said.
pub(super) fn refusal(image: &str, words: &str, is_refused: bool) -> Error {
    let lower = words.to_ascii_lowercase();
    let says = |signs: &[&str]| signs.iter().any(|sign| lower.contains(sign));
    let tell = |cause: &str| format!("cannot pull the image '{image}': {cause}{words}");
    // A registry that is not reached says nothing about images.
    if says(&NOT_REACHABLE) {
        return Error::Transient(tell("registry not reachable: "));
    }
    if says(&UNAUTHORIZED) {
        return Error::Permanent(tell("unauthorized: "));
    }
    if says(&NOT_FOUND) {
        return Error::Permanent(tell("image not found: "));
    }
    if is_refused { Error::Permanent(tell("")) } else { Error::Transient(tell("")) }
}

const NOT_REACHABLE: [&str; 10] = [
    "connection refused",
    "connection reset",
    "no such host",
    "i/o timeout",
    "no route to host",
    "network is unreachable",
    "deadline exceeded",
    "timeout exceeded",
    "tls handshake timeout",
    "server misbehaving",
];
const UNAUTHORIZED: [&str; 5] = [
    "unauthorized",
    "authentication required",
    "no basic auth credentials",
    "incorrect username or password",
    "access forbidden",
];
const NOT_FOUND: [&str; 6] = [
    "not found",
    "manifest unknown",
    "name unknown",
    "repository does not exist",
    "no matching manifest",
    "invalid reference",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_the_first_part_of_an_image() {
        for (image, host) in [
            ("web", "docker.io"),
            ("acme/web:1", "docker.io"),
            ("docker.io/acme/web", "docker.io"),
            ("index.docker.io/acme/web", "docker.io"),
            ("localhost/web", "localhost"),
            (" registry.acme.com/web@sha256:ab", "registry.acme.com"),
            ("registry:5000/a/b/web:1", "registry:5000"),
        ] {
            assert_eq!(host_of(image), host, "{image}");
        }
    }

    #[test]
    fn only_the_registry_that_is_named_learns_who_asks() {
        let registry = |address: &str| Registry {
            address: address.to_owned(),
            username: format!("user of {address}"),
            password: Secret::new("hidden"),
        };
        let known = [registry("https://index.docker.io/v1/"), registry("r.acme.com:5000")];
        let user = |image| credentials(&known, image).and_then(|found| found.username);
        assert_eq!(user("acme/web").as_deref(), Some("user of https://index.docker.io/v1/"));
        assert_eq!(user("r.acme.com:5000/web").as_deref(), Some("user of r.acme.com:5000"));
        assert_eq!(user("r.acme.com/web"), None);
        assert_eq!(user("other.acme.com:5000/web"), None);
        assert!(!format!("{known:?}").contains("hidden"));
    }

    #[test]
    fn refusals_are_told_apart() {
        for (words, cause, permanent) in [
            ("manifest for x not found: manifest unknown: y", "image not found: ", true),
            (
                "pull access denied for x, repository does not exist or may require 'docker login'",
                "image not found: ",
                true,
            ),
            ("Head \"http://x/v2/\": no basic auth credentials", "unauthorized: ", true),
            ("unauthorized: authentication required", "unauthorized: ", true),
            (
                "Get \"https://x/v2/\": dial tcp 127.0.0.1:1: connect: connection refused",
                "registry not reachable: ",
                false,
            ),
            ("dial tcp: lookup x: no such host", "registry not reachable: ", false),
            ("toomanyrequests: slow down", "", false),
        ] {
            let error = refusal("x", words, false);
            assert_eq!(error.to_string(), format!("cannot pull the image 'x': {cause}{words}"));
            assert_eq!(error.is_permanent(), permanent, "{words}");
        }
        assert!(refusal("x", "something else", true).is_permanent());
    }
}
