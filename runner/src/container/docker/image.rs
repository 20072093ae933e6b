//! Whether the image is there, and fetching it when the definition says so.

use bollard::Docker;
use bollard::models::ImageInspect;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::TryStreamExt;

use super::settings::Container;
use super::{failed, is_missing};
use crate::container::Failure;

/// Where programs are looked for in an image that does not say, as the daemon has it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns once the machine has the image, with the `PATH` that it sets.
///
/// # Errors
/// When it has not, with how to get it; when it cannot be fetched.
pub(super) async fn ensure(docker: &Docker, container: &Container) -> Result<String, Failure> {
    let image = &container.image;
    match docker.inspect_image(image).await {
        Ok(found) => Ok(path(&found)),
        Err(error) if !is_missing(&error) => Err(failed("look for the image", &error)),
        Err(_) if container.pull => {
            pull(docker, image).await?;
            let found = docker.inspect_image(image).await;
            found.map(|found| path(&found)).map_err(|error| failed("look at the image", &error))
        }
        Err(_) => Err(Failure(format!(
            "the image `{image}` is not on this runner's machine; run `docker pull {image}` there, or set `pull = true`"
        ))),
    }
}

fn path(image: &ImageInspect) -> String {
    let env = image.config.iter().flat_map(|config| config.env.iter().flatten());
    env.filter_map(|variable| variable.strip_prefix("PATH=")).next().unwrap_or(PATH).to_owned()
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
