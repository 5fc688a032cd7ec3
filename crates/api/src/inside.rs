//! The REST API for callers inside of the service: the same routes, without a network in between.
//!
//! The WebSocket API is made of it, so that both can never differ.

use crate::front;
use crate::routes;
use crate::service::Service;
use actix_http::Request;
use actix_service::IntoServiceFactory;
use actix_web::dev::{AppConfig, Service as _, ServiceFactory as _};
use actix_web::middleware::from_fn;
use actix_web::{App, HttpResponse, web};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use std::rc::Rc;
use tokio::sync::OnceCell;

/// The routes, made on first use; one for each thread that serves HTTP.
#[derive(Clone)]
pub struct Inside {
    service: web::Data<Service>,
    routes: Rc<OnceCell<Call>>,
}

type Call = Box<dyn Fn(Request) -> LocalBoxFuture<'static, Option<HttpResponse>>>;

impl Inside {
    /// The routes of `service`.
    pub fn new(service: web::Data<Service>) -> Self {
        Self { service, routes: Rc::default() }
    }

    /// The answer to `request`; `None` when there is none, which is a mistake of this program.
    pub async fn call(&self, request: Request) -> Option<HttpResponse> {
        let made = self.routes.get_or_try_init(|| make(self.service.clone())).await;
        match made {
            Ok(call) => call(request).await,
            Err(()) => None,
        }
    }
}

async fn make(service: web::Data<Service>) -> Result<Call, ()> {
    let app = App::new()
        .app_data(service)
        .wrap(from_fn(front::pass_inside))
        .configure(routes::configure_api)
        .into_factory();
    let routes = Rc::new(app.new_service(AppConfig::default()).await?);
    Ok(Box::new(move |request| {
        let routes = Rc::clone(&routes);
        let answer = async move {
            let answer = routes.call(request).await.ok()?;
            Some(answer.map_into_boxed_body().into_parts().1)
        };
        answer.boxed_local()
    }))
}
