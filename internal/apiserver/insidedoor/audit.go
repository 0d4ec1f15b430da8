package insidedoor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"
	metainternalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// userAgent is what the record of a write says of how it came.
const userAgent = "everynode/in-process"

// Audit is what writes are recorded by, as requests are. Without a policy or a
// sink nothing is recorded, and that costs nothing.
type Audit struct {
	// Policy says how much of a write is recorded.
	Policy audit.PolicyRuleEvaluator
	// Sink takes the records.
	Sink audit.Sink
	// Codecs encode the objects in them.
	Codecs runtime.NegotiatedSerializer
}

func (a Audit) off() bool { return a.Policy == nil || a.Sink == nil }

// annotated lets the plugins of a chain add to the record.
func (a Audit) annotated(chain admission.Interface) admission.Interface {
	if a.off() {
		return chain
	}
	return admission.WithAudit(chain)
}

// begin opens the record of a write, which the context then carries.
func (a Audit) begin(ctx context.Context, asked *authorizer.AttributesRecord) (context.Context, error) {
	if a.off() {
		return ctx, nil
	}
	rule := a.Policy.EvaluatePolicyRule(asked)
	audit.ObservePolicyLevel(ctx, rule.Level)
	if rule.Level == auditinternal.LevelNone {
		return ctx, nil
	}
	ctx = audit.WithAuditContext(ctx)
	record := audit.AuditContextFrom(ctx)
	if err := record.Init(rule, a.Sink); err != nil {
		return ctx, fmt.Errorf("begin the audit record: %w", err)
	}
	audit.WithAuditID(ctx, types.UID(uuid.NewString()))
	like := &http.Request{
		URL:        &url.URL{Path: path(asked)},
		Header:     http.Header{"User-Agent": {userAgent}},
		RemoteAddr: "127.0.0.1:0",
	}
	audit.LogRequestMetadata(ctx, like, time.Now(), asked)
	if !record.ProcessEventStage(ctx, auditinternal.StageRequestReceived) {
		audit.ApiserverAuditDroppedCounter.WithContext(ctx).Inc()
		return ctx, errors.New("failed to store audit event")
	}
	return ctx, nil
}

// path is where the write would go as a request.
func path(asked *authorizer.AttributesRecord) string {
	out := "/" + apiPrefix(asked.APIGroup)
	for _, p := range []struct{ before, part string }{
		{"/", asked.APIGroup}, {"/", asked.APIVersion}, {"/namespaces/", asked.Namespace},
		{"/", asked.Resource}, {"/", asked.Name}, {"/", asked.Subresource},
	} {
		if p.part != "" {
			out += p.before + p.part
		}
	}
	return out
}

// request adds the written object. Encoding changes an object for a moment, and
// this one is the caller's.
func (a Audit) request(ctx context.Context, w *write, obj runtime.Object) {
	if record := audit.AuditContextFrom(ctx); record != nil {
		audit.LogRequestObject(ctx, obj.DeepCopyObject(), w.kind.GroupVersion(), w.Resource, w.Subresource, a.Codecs)
	}
}

// deletion adds the options of a deletion.
func (a Audit) deletion(ctx context.Context, w *write, options *metav1.DeleteOptions) {
	audit.LogRequestObject(
		ctx, options.DeepCopy(), metav1.SchemeGroupVersion, w.Resource, w.Subresource, metainternalscheme.Codecs,
	)
}

// end closes the record with the outcome.
func (a Audit) end(ctx context.Context, w *write, verb string, out runtime.Object, err error) {
	record := audit.AuditContextFrom(ctx)
	if record == nil {
		return
	}
	code := int32(http.StatusOK)
	switch {
	case err != nil:
		status := responsewriters.ErrorToAPIStatus(err)
		code = status.Code
		audit.LogResponseObject(ctx, status, schema.GroupVersion{Version: "v1"}, a.Codecs)
	case verb == "create":
		code = http.StatusCreated
		audit.LogResponseObject(ctx, out, w.kind.GroupVersion(), a.Codecs)
	default:
		audit.LogResponseObject(ctx, out, w.kind.GroupVersion(), a.Codecs)
	}
	record.SetEventResponseStatusCode(code)
	record.ProcessEventStage(ctx, auditinternal.StageResponseComplete)
}
