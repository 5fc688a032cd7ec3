//! The files of the user interface: the index at `/`, and files below the configured directory (wire, section 12).

use crate::request::{not_ready, refusal};
use crate::service::Service;
use actix_files::NamedFile;
use actix_web::http::Method;
use actix_web::{HttpRequest, HttpResponse, web};
use std::path::{Component, Path, PathBuf};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.default_service(web::to(file));
}

/// A file, or 404 as plain text.
async fn file(http: HttpRequest, service: web::Data<Service>) -> HttpResponse {
    if service.running().is_none() {
        return refusal(&http, &not_ready());
    }
    if matches!(*http.method(), Method::GET | Method::HEAD) {
        let settings = &service.config.settings.api.ui;
        let found = match &settings.directory {
            Some(directory) => find(directory.clone(), settings.index.clone(), http.path()).await,
            None => None,
        };
        if let Some(file) = found {
            return file.into_response(&http);
        }
    }
    let text = format!("Nothing is known at {}. The API is below /api/v1.\n", http.path());
    HttpResponse::NotFound().content_type("text/plain; charset=utf-8").body(text)
}

/// The file that `path` names, as long as it is below `directory`, links followed.
async fn find(directory: PathBuf, index: PathBuf, path: &str) -> Option<NamedFile> {
    let relative = relative(path)?;
    let relative = if relative.as_os_str().is_empty() { index } else { relative };
    // Whole paths tell where links lead; asking the disk may take its time.
    let found = web::block(move || {
        let whole = directory.join(&relative).canonicalize().ok()?;
        let root = directory.canonicalize().ok()?;
        (whole.starts_with(root) && whole.is_file()).then_some(whole)
    });
    NamedFile::open_async(found.await.ok()??).await.ok()
}

/// `path`, decoded, below the root; nothing that leads up or elsewhere.
fn relative(path: &str) -> Option<PathBuf> {
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
    let relative = Path::new(decoded.trim_start_matches('/'));
    let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && !decoded.contains('\0')).then(|| relative.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(relative(path), expected.map(PathBuf::from), "{path}");
        };
        check("/", Some(""));
        check("/app.js", Some("app.js"));
        check("/a/b%20c.css", Some("a/b c.css"));
        check("/../secret", None);
        check("/a/../../secret", None);
        check("/%2e%2e/secret", None);
        check("/..%2Fsecret", None);
        check("//etc/passwd", Some("etc/passwd"));
        check("/a%00b", None);
        check("/%ff", None);
    }
}
