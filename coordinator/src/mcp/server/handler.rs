//! What rmcp asks of a server, answered by the offer.

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelledNotificationParam,
    CompleteRequestParams, CompleteResult, CompletionInfo, CustomRequest, CustomResult, DiscoverResult,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, GetTaskParams, GetTaskResult,
    InitializeRequestParams, InitializeResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, Reference, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use skein_shared::Refusal;

use super::running;
use super::{
    Caller, Facade, Gone, LIST_TTL_MS, Listed, client_of, is_session, left, subscriptions, unfit, wire,
};
use crate::mcp::instructions;
use crate::mcp::offer::{Place, Written};
use crate::mcp::result::Then;
use crate::mcp::view::{self, Detail};

/// What is read may be different the next moment.
const READ_TTL_MS: u64 = 0;
/// So often a client may be asked in the course of one call.
const ROUNDS: usize = 10;

fn refuse(refusal: Refusal) -> ErrorData {
    wire::refused(&refusal)
}

fn one_page(request: Option<PaginatedRequestParams>, what: &str) -> Result<(), ErrorData> {
    match request.is_some_and(|page| page.cursor.is_some()) {
        true => {
            Err(ErrorData::invalid_params(format!("{what} come in one page; leave the cursor out"), None))
        }
        false => Ok(()),
    }
}

impl ServerHandler for Facade {
    fn get_info(&self) -> ServerConfig {
        self.config(None)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let role = left::<Caller>(&context)?.role();
        context.peer.set_peer_info(request.clone());
        let mut negotiated = self.negotiate_initialize(&request)?;
        // In a session nobody is told of the list of all resources: that of each sort has an address to subscribe to.
        if let Some(resources) = &mut negotiated.capabilities.resources {
            resources.list_changed = None;
        }
        Ok(negotiated.with_instructions(instructions::for_role(role)))
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let role = left::<Caller>(&context)?.role();
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, self.config(role))
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(CacheScope::Private))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        one_page(request, "tools")?;
        let Caller { who, view, .. } = left(&context)?;
        let brief = view::detail(&view) == Detail::Brief;
        let tools = view::list(self.offer.tools(), who.role, &view).into_iter().map(|position| {
            let Listed { brief: short, full, .. } = &self.listed[position];
            if brief { short.clone() } else { full.clone() }
        });
        Ok(ListToolsResult::with_all_items(tools.collect())
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(CacheScope::Private))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.offer.tools().position(name).map(|position| self.listed[position].full.clone())
    }

    /// Runs the tool, tells a client that asked for progress that it is alive, asks a client in a session what
    /// the tool has to know, and stops when it has gone.
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (caller, Gone(gone_away)) = (left::<Caller>(&context)?, left(&context)?);
        let CallToolRequestParams { name, arguments, input_responses, request_state, .. } = request;
        let arguments = arguments.unwrap_or_default();
        let mut client = client_of(&context);
        client.answers = input_responses.unwrap_or_default();
        client.state = self.seal.open(&caller.who, &name, request_state.as_deref())?;
        let (token, mut done) = (context.meta.get_progress_token(), 0.0);
        for _ in 0..ROUNDS {
            let heard = self.heard(&caller, &client, &name, arguments.clone(), &context, &mut done);
            let mut reply = heard.await?;
            let Then::Asks(questions) = &mut reply.then else {
                return running::response(&self.seal, &caller.who, &name, &client, reply);
            };
            if !is_session(&context) {
                return running::response(&self.seal, &caller.who, &name, &client, reply);
            }
            let asking = running::ask(&context.peer, &client, questions, token.as_ref(), &mut done);
            let answers = tokio::select! {
                answers = asking => answers?,
                () = context.ct.cancelled() => return Err(self.unanswered(&name)),
                () = gone_away.cancelled() => return Err(self.unanswered(&name)),
            };
            match answers {
                Some(answers) => {
                    client.answers = answers;
                    client.state = std::mem::take(&mut questions.state);
                }
                None => client = client.unheeded(questions),
            }
        }
        Err(ErrorData::internal_error(format!("{name} asks on and on; it was given up"), None))
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(unfit::refusal(&request, is_session(&context)))
    }

    /// Most calls that are given up are under way, and hear of it themselves. The answer to this one may be out
    /// already.
    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _context: NotificationContext<RoleServer>,
    ) {
        if let Some(call) = notification.request_id {
            self.answered.cancelled(&call);
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        one_page(request, "prompts")?;
        let prompts = self.offer.prompts(&self.looking(&context)?);
        Ok(ListPromptsResult::with_all_items(prompts.iter().map(wire::prompt).collect())
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(CacheScope::Private))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let mut caller = self.looking(&context)?;
        let GetPromptRequestParams { name, arguments, input_responses, request_state, .. } = request;
        caller.client.answers = input_responses.unwrap_or_default();
        caller.client.state = self.seal.open(&caller.who, &name, request_state.as_deref())?;
        let arguments = arguments.unwrap_or_default();
        let known = self.offer.prompts(&caller).into_iter().find(|prompt| prompt.name == name);
        if let Some(prompt) = &known
            && let Some(missing) =
                prompt.arguments.iter().find(|one| one.required && !arguments.contains_key(one.name))
        {
            let problem =
                format!("the prompt `{name}` needs the argument `{}`: {}", missing.name, missing.about);
            return Err(ErrorData::invalid_params(problem, None));
        }
        let written = self.offer.prompt(&caller, &name, &arguments).await;
        match written.map_err(|refusal| wire::not_found(&name, &refusal))? {
            Written::Messages(messages) => {
                let messages = messages.into_iter().map(wire::message).collect();
                let about = known.map(|prompt| prompt.about).unwrap_or_default();
                Ok(GetPromptResult::new(messages).with_description(about).into())
            }
            Written::Asks(questions) => {
                running::input_required(&self.seal, &caller.who, &name, &caller.client, &questions)
                    .map(Into::into)
            }
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let caller = self.looking(&context)?;
        let cursor = request.and_then(|page| page.cursor);
        let page = self.offer.list(&caller, cursor.as_deref()).await.map_err(refuse)?;
        let resources = page.listed.into_iter().map(wire::resource).collect();
        let mut listed = ListResourcesResult::with_all_items(resources)
            .with_ttl_ms(READ_TTL_MS)
            .with_cache_scope(CacheScope::Private);
        listed.next_cursor = page.next;
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        one_page(request, "templates")?;
        let templates = self.offer.templates().into_iter().map(wire::template).collect();
        Ok(ListResourceTemplatesResult::with_all_items(templates)
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(CacheScope::Private))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let caller = self.looking(&context)?;
        let document = self.offer.read(&caller, &request.uri).await;
        let document = document.map_err(|refusal| wire::not_found(&request.uri, &refusal))?;
        let read = ReadResourceResult::new(vec![wire::contents(document)]);
        Ok(read.with_ttl_ms(READ_TTL_MS).with_cache_scope(CacheScope::Private).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let caller = self.looking(&context)?;
        let place = match &request.r#ref {
            Reference::Resource(template) => Place::Template(&template.uri),
            Reference::Prompt(prompt) => Place::Prompt(&prompt.name),
            _ => return Err(ErrorData::invalid_params("ref: name a prompt or a resource template", None)),
        };
        let argument = &request.argument;
        let mut words =
            self.offer.complete(&caller, place, &argument.name, &argument.value).await.map_err(refuse)?;
        let more = words.len() > CompletionInfo::MAX_VALUES;
        words.truncate(CompletionInfo::MAX_VALUES);
        let completion = CompletionInfo::with_pagination(words, None, more);
        Ok(CompleteResult::new(completion.map_err(|problem| ErrorData::internal_error(problem, None))?))
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(subscriptions::accepted(requested))
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let listener = self.listener(subscription.request_context())?;
        tokio::select! {
            ended = subscriptions::listen(listener, &subscription) => ended,
            () = self.shutdown.cancelled() => Ok(()),
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let (listener, uri) = (self.listener(&context)?, request.uri);
        let watched = self.watched.add(listener, uri.clone(), context.peer.clone(), left(&context)?).await;
        watched.map_err(|refusal| wire::not_found(&uri, &refusal))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.watched.remove(&request.uri);
        Ok(())
    }

    #[expect(deprecated, reason = "the older revision has it")]
    async fn set_level(
        &self,
        _request: rmcp::model::SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.offer.is_fixture() {
            true => Ok(()),
            false => Err(ErrorData::method_not_found::<rmcp::model::SetLevelRequestMethod>()),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let caller = self.looking(&context)?;
        let job = self.offer.job(&caller, &request.task_id).await;
        let job = job.map_err(|refusal| wire::not_found(&request.task_id, &refusal))?;
        wire::detailed(job).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let caller = self.looking(&context)?;
        let UpdateTaskParams { task_id, input_responses, .. } = request;
        let answered = self.offer.answer_job(&caller, &task_id, input_responses).await;
        answered.map_err(|refusal| wire::not_found(&task_id, &refusal))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let caller = self.looking(&context)?;
        let cancelled = self.offer.cancel_job(&caller, &request.task_id).await;
        cancelled.map_err(|refusal| wire::not_found(&request.task_id, &refusal))
    }
}
