//! What happens to every request before it is routed and to every answer before it leaves: path prefixes, a trailing
//! slash, and headers that all answers share.

use crate::request::OriginalPath;
use crate::service::Service;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderValue};
use actix_web::http::uri::{PathAndQuery, Uri};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, web};

/// Roots that are also reachable below the namespace.
const ROOTS: [&str; 3] = ["api", "livez", "readyz"];

/// Brings the path into its plain form, remembers how it was, and finishes the headers of the answer.
pub async fn pass<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let settings = request.app_data::<web::Data<Service>>().map(|service| {
        let settings = &service.config.settings;
        (settings.namespace.clone(), settings.api.strip_path_segments)
    });
    let original = request.path().to_owned();
    if let Some((namespace, dropped)) = settings {
        let raw = request.uri().path().to_owned();
        let plain = plain(&raw, &namespace, dropped);
        if plain != raw {
            replace_path(&mut request, plain);
        }
        request.extensions_mut().insert(OriginalPath(raw));
    } else {
        request.extensions_mut().insert(OriginalPath(original));
    }
    let is_api = request.path().starts_with("/api/v1");
    let mut response = next.call(request).await?;
    let headers = response.headers_mut();
    if is_api {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    }
    // Streams say that they are not encoded, to be left alone by the compression; clients need not see that.
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding == "identity") {
        headers.remove(header::CONTENT_ENCODING);
    }
    Ok(response)
}

/// `path` without dropped segments, namespace and one trailing slash.
fn plain<'a>(path: &'a str, namespace: &str, dropped: usize) -> &'a str {
    let mut plain = path;
    for _ in 0..dropped {
        let rest = plain.strip_prefix('/').unwrap_or(plain);
        plain = rest.find('/').map_or("/", |slash| &rest[slash..]);
    }
    let below =
        plain.strip_prefix('/').and_then(|rest| rest.strip_prefix(namespace)).filter(|below| {
            let root =
                below.strip_prefix('/').map(|rest| rest.split('/').next().unwrap_or_default());
            root.is_some_and(|root| ROOTS.contains(&root))
        });
    plain = below.unwrap_or(plain);
    match plain.strip_suffix('/') {
        Some("") | None => plain,
        Some(shorter) => shorter,
    }
}

fn replace_path(request: &mut ServiceRequest, path: &str) {
    let uri = request.uri();
    let text = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    // A part of a legal path is a legal path, so these cannot fail; if they do the path stays as it is.
    let Ok(path_and_query) = PathAndQuery::from_maybe_shared(text.into_bytes()) else { return };
    parts.path_and_query = Some(path_and_query);
    let Ok(uri) = Uri::from_parts(parts) else { return };
    request.match_info_mut().get_mut().update(&uri);
    request.head_mut().uri = uri;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths() {
        let check = |path: &str, dropped: usize, expected: &str| {
            assert_eq!(plain(path, "default", dropped), expected, "{path}");
        };
        check("/", 0, "/");
        check("/api/v1/breeds", 0, "/api/v1/breeds");
        check("/api/v1/breeds/", 0, "/api/v1/breeds");
        check("/api/v1/breeds//", 0, "/api/v1/breeds/");
        check("/api/v1/", 0, "/api/v1");
        check("/default/api/v1/breeds", 0, "/api/v1/breeds");
        check("/other/api/v1/breeds", 0, "/other/api/v1/breeds");
        check("/default", 0, "/default");
        check("/defaultapi/v1", 0, "/defaultapi/v1");
        check("/a/b/api/v1", 2, "/api/v1");
        check("/a/default/api/v1", 1, "/api/v1");
        check("/a", 2, "/");
        check("/api/v1/gateways/shop%2Fweb", 0, "/api/v1/gateways/shop%2Fweb");
    }
}
