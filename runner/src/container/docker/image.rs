//! Whether the image is there, and fetching it when the definition says so.

use bollard::Docker;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::TryStreamExt;

use super::settings::Container;
use super::{failed, is_missing};
use crate::container::Failure;

/// Returns once the machine has the image.
///
/// # Errors
/// When it has not, with how to get it; when it cannot be fetched.
pub(super) async fn ensure(docker: &Docker, container: &Container) -> Result<(), Failure> {
    let image = &container.image;
    match docker.inspect_image(image).await {
        Ok(_) => Ok(()),
        Err(error) if !is_missing(&error) => Err(failed("look for the image", &error)),
        Err(_) if container.pull => pull(docker, image).await,
        Err(_) => Err(Failure(format!(
            "the image `{image}` is not on this runner's machine; run `docker pull {image}` there, or set `pull = true`"
        ))),
    }
}

async fn pull(docker: &Docker, image: &str) -> Result<(), Failure> {
    // Without a tag or digest the daemon would fetch every tag there is.
    let last = image.rsplit('/').next().unwrap_or(image);
    let tag = if last.contains([':', '@']) { "" } else { "latest" };
    let options = CreateImageOptionsBuilder::new().from_image(image).tag(tag).build();
    let pulled = docker.create_image(Some(options), None, None).try_for_each(|_| async { Ok(()) }).await;
    pulled.map_err(|error| {
        Failure(format!(
            "the image `{image}` could not be pulled: {error}; check its name, or run `docker pull {image}` on the runner's machine"
        ))
    })
}
