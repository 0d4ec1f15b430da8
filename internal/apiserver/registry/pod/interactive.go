package pod

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// mayCreate asks for the verb create, which a command in a container needs whatever
// the method of the request is: a WebSocket begins with a GET, and that alone a role
// that only reads allows.
func mayCreate(ctx context.Context, decider authorizer.UnconditionalAuthorizer) error {
	asked, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return fmt.Errorf("find out what is asked for: %w", err)
	}
	if asked.GetVerb() == "create" {
		return nil // authorized already
	}
	create := authorizer.AttributesRecord{
		User: asked.GetUser(), Verb: "create", Namespace: asked.GetNamespace(), Name: asked.GetName(), ResourceRequest: true,
		APIGroup: asked.GetAPIGroup(), APIVersion: asked.GetAPIVersion(), Resource: asked.GetResource(),
		Subresource: asked.GetSubresource(), Path: asked.GetPath(),
	}
	decision, reason, err := decider.Authorize(ctx, create)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find out whether that may be created: %w", err)
	}
	return responsewriters.ForbiddenStatusError(create, reason)
}
