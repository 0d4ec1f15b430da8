// Package insidedoor lets the control loops of the same process write to the
// API below HTTP. A write that comes in here passes the same admission chain
// and is defaulted, prepared, validated and stored by the same storages as one
// that comes over the network. It is authorized and audited under the account of
// the loop that writes. What is left out is what a loop in the same process does
// not need: connections, authentication, flow control, encoding and decoding.
// That makes a write several times cheaper. One that says only that a node is alive takes
// a shorter way still, unless somebody configured admission.
//
// Fields that are changed here are not recorded in metadata.managedFields. The
// door is therefore for objects, or parts of objects, that only the control
// plane writes: pods of controllers, their binding and status, leases, events,
// simulated nodes, and what controllers say of nodes.
package insidedoor

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/internal/apiserver/hotstore"
	"github.com/everynode/everynode/internal/storage/members"
)

// callTimeout bounds one call, as the API server bounds a request.
const callTimeout = 34 * time.Second

// Config is what the door leads to.
type Config struct {
	Scheme *runtime.Scheme
	// Admission is the chain that every write passes.
	Admission admission.Interface
	// Configured says whether there is admission that somebody configured, as webhooks or
	// policies. Plugins that are always there have nothing to say of a renewal.
	Configured func() bool
	// Authorizer says what the accounts of the loops may do.
	Authorizer authorizer.UnconditionalAuthorizer
	// Audit is told of every write.
	Audit Audit
	// Equivalents tells admission under which other names a resource is served.
	Equivalents runtime.EquivalentResourceMapper
	// Storages are the served storages by version and path, such as "pods/status".
	Storages map[schema.GroupVersion]map[string]rest.Storage
}

// Target says what a write is about.
type Target struct {
	Resource schema.GroupVersionResource
	// Subresource is "status" or "binding", or empty.
	Subresource     string
	Namespace, Name string
}

// path is the target's path below its version.
func (t Target) path() string {
	if t.Subresource == "" {
		return t.Resource.Resource
	}
	return t.Resource.Resource + "/" + t.Subresource
}

// Door takes writes from inside the process. What it returns is shared with the server's
// memory: nobody changes it, but for the outermost fields. Its errors are the API's own
// (apierrors), or wrap the context's when that ended first.
type Door struct {
	scheme     *runtime.Scheme
	admission  admission.Interface
	configured func() bool
	authorizer authorizer.UnconditionalAuthorizer
	audit      Audit
	objects    admission.ObjectInterfaces
	storages   map[schema.GroupVersion]map[string]served
	// writer is who writes: a control loop's account, or the server itself.
	writer user.Info
	// turn is in whose name writes are; nil for nobody's.
	turn *members.Turn
}

// New returns a door to the storages, for the server itself.
func New(c Config) *Door {
	return &Door{
		scheme: c.Scheme, storages: kinds(c), authorizer: c.Authorizer, audit: c.Audit, configured: c.Configured,
		admission: fieldmanager.NewManagedFieldsValidatingAdmissionController(c.Audit.annotated(c.Admission)),
		objects: &admission.RuntimeObjectInterfaces{
			ObjectCreater: c.Scheme, ObjectTyper: c.Scheme, ObjectDefaulter: c.Scheme, ObjectConvertor: c.Scheme,
			EquivalentResourceMapper: c.Equivalents,
		},
		writer: &user.DefaultInfo{
			Name:   user.APIServerUser,
			Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup},
		},
	}
}

type insideKey struct{}

// Inside says whether a context is that of a write through the door.
func Inside(ctx context.Context) bool { return ctx.Value(insideKey{}) != nil }

// As returns the door as another writer uses it, with no more than that one's rights.
func (d *Door) As(writer user.Info) *Door {
	other := *d
	other.writer = writer
	return &other
}

// In returns the door for writes in the name of a turn of the control loops; nil is nobody's.
func (d *Door) In(turn *members.Turn) *Door {
	other := *d
	other.turn = turn
	return &other
}

// Create stores a new object and returns it as stored. For a subresource such
// as a binding it returns what that answers. obj is not changed.
func (d *Door) Create(ctx context.Context, t Target, obj runtime.Object) (runtime.Object, error) {
	return d.call(ctx, t, "create", func(ctx context.Context, w *write) (runtime.Object, error) {
		options := &metav1.CreateOptions{TypeMeta: optionsType("CreateOptions")}
		obj := obj.DeepCopyObject()
		d.scheme.Default(obj)
		if err := w.checkNew(obj); err != nil {
			return nil, err
		}
		d.audit.request(ctx, w, obj)
		attributes := w.attributes(obj, nil, admission.Create, options)
		if err := d.admit(ctx, attributes); err != nil {
			return nil, err
		}
		validate := rest.AdmissionToValidateObjectFunc(d.admission, attributes, d.objects)
		switch s := w.storage.(type) {
		case rest.NamedCreater:
			return s.Create(ctx, t.Name, obj, validate, options)
		case rest.Creater:
			return s.Create(ctx, obj, validate, options)
		}
		return nil, w.unsupported()
	})
}

// Admitted returns what Create would hand to the storage: obj with its defaults, after authorization and all of
// admission. Nothing is stored, and nothing recorded. obj is not changed.
func (d *Door) Admitted(ctx context.Context, t Target, obj runtime.Object) (runtime.Object, error) {
	unrecorded := *d
	unrecorded.audit = Audit{}
	return unrecorded.call(ctx, t, "create", func(ctx context.Context, w *write) (runtime.Object, error) {
		obj := obj.DeepCopyObject()
		d.scheme.Default(obj)
		if err := w.checkNew(obj); err != nil {
			return nil, err
		}
		options := &metav1.CreateOptions{TypeMeta: optionsType("CreateOptions")}
		attributes := w.attributes(obj, nil, admission.Create, options)
		if err := d.admit(ctx, attributes); err != nil {
			return nil, err
		}
		return obj, rest.AdmissionToValidateObjectFunc(d.admission, attributes, d.objects)(ctx, obj.DeepCopyObject())
	})
}

// Update stores obj over the object that exists and returns it as stored. It
// fails with Conflict when obj has the resource version of an older one, and
// never creates. obj is not changed.
func (d *Door) Update(ctx context.Context, t Target, obj runtime.Object) (runtime.Object, error) {
	return d.call(ctx, t, "update", func(ctx context.Context, w *write) (runtime.Object, error) {
		updater, ok := w.storage.(rest.Updater)
		if !ok {
			return nil, w.unsupported()
		}
		if err := w.checkNamed(obj); err != nil {
			return nil, err
		}
		d.audit.request(ctx, w, obj)
		if renewed := d.renew(ctx, w, obj); renewed != nil {
			return renewed, nil
		}
		options := &metav1.UpdateOptions{TypeMeta: optionsType("UpdateOptions")}
		// The storage hands over a copy of obj at each try.
		info := rest.DefaultUpdatedObjectInfo(
			obj,
			func(ctx context.Context, changed, old runtime.Object) (runtime.Object, error) {
				if err := w.carryOver(changed, old); err != nil {
					return nil, err
				}
				d.scheme.Default(changed)
				return changed, d.admit(ctx, w.attributes(changed, old, admission.Update, options))
			},
		)
		validate := rest.AdmissionToValidateObjectUpdateFunc(
			d.admission, w.attributes(nil, nil, admission.Update, options), d.objects,
		)
		out, _, err := updater.Update(ctx, t.Name, info, w.neverCreate, validate, false, options)
		return out, err
	})
}

// renewer is a storage that takes it at once that somebody is alive, or returns nil.
type renewer interface {
	Renew(ctx context.Context, name string, obj runtime.Object) runtime.Object
}

// renew is the short way of a write that says of an object only that somebody is alive. There
// is nothing in it that could be invalid, and nobody to ask. It returns nil for all others.
func (d *Door) renew(ctx context.Context, w *write, obj runtime.Object) runtime.Object {
	storage, ok := w.storage.(renewer)
	if !ok || w.Subresource != "" || d.configured() {
		return nil
	}
	return storage.Renew(ctx, w.Name, obj)
}

// Delete deletes the object, or marks it as being deleted when it has a grace
// period or finalizers.
func (d *Door) Delete(ctx context.Context, t Target, options metav1.DeleteOptions) error {
	_, err := d.call(ctx, t, "delete", func(ctx context.Context, w *write) (runtime.Object, error) {
		deleter, ok := w.storage.(rest.GracefulDeleter)
		if !ok {
			return nil, w.unsupported()
		}
		// The storage fills in the grace period.
		options := options.DeepCopy()
		options.TypeMeta = optionsType("DeleteOptions")
		d.audit.deletion(ctx, w, options)
		validate := rest.AdmissionToValidateObjectDeleteFunc(
			d.admission, w.attributes(nil, nil, admission.Delete, options), d.objects,
		)
		out, _, err := deleter.Delete(ctx, t.Name, validate, options)
		return out, err
	})
	return err
}

func (d *Door) admit(ctx context.Context, a admission.Attributes) error {
	if m, ok := d.admission.(admission.MutationInterface); ok && m.Handles(a.GetOperation()) {
		return m.Admit(ctx, a, d.objects)
	}
	return nil
}

// call runs one write the way a request handler would.
func (d *Door) call(
	ctx context.Context, t Target, verb string, f func(context.Context, *write) (runtime.Object, error),
) (out runtime.Object, err error) {
	w, err := d.prepare(t)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	bounded = context.WithValue(bounded, insideKey{}, true)
	bounded = members.InTurn(request.WithNamespace(request.WithUser(bounded, d.writer), t.Namespace), d.turn)
	bounded = request.WithRequestInfo(bounded, &request.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIPrefix: apiPrefix(t.Resource.Group), APIGroup: t.Resource.Group,
		APIVersion: t.Resource.Version,
		Resource:   t.Resource.Resource, Subresource: t.Subresource, Namespace: t.Namespace, Name: t.Name,
	})
	if verb != "create" || t.Subresource == "" {
		// Nothing on these ways writes into the object that exists; a binding does.
		bounded = hotstore.Careful(bounded)
	}
	asked := d.asked(t, verb)
	bounded, err = d.audit.begin(bounded, asked)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	defer func() {
		// As with a request, a fault in one write must not end the process.
		if p := recover(); p != nil {
			out, err = nil, apierrors.NewInternalError(fmt.Errorf(
				"%s %s %s/%s: panic: %v", verb, t.path(), t.Namespace, t.Name, p,
			))
		}
		d.audit.end(bounded, w, verb, out, err)
	}()
	if err = d.authorize(bounded, asked); err == nil {
		out, err = f(bounded, w)
	}
	if err != nil {
		return nil, apiError(ctx, bounded, verb, t, err)
	}
	return out, nil
}

// asked is what the authorizer and the policy of audits are asked about.
func (d *Door) asked(t Target, verb string) *authorizer.AttributesRecord {
	name := t.Name
	if verb == "create" && t.Subresource == "" {
		name = "" // as in a request, whose path ends before it
	}
	return &authorizer.AttributesRecord{
		User: d.writer, Verb: verb, ResourceRequest: true, Namespace: t.Namespace, Name: name,
		APIGroup: t.Resource.Group, APIVersion: t.Resource.Version, Resource: t.Resource.Resource, Subresource: t.Subresource,
	}
}

func (d *Door) authorize(ctx context.Context, asked *authorizer.AttributesRecord) error {
	decision, reason, err := d.authorizer.Authorize(ctx, asked)
	switch {
	case decision == authorizer.DecisionAllow:
		audit.AddAuditAnnotations(ctx, "authorization.k8s.io/decision", "allow", "authorization.k8s.io/reason", reason)
		return nil
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("authorize %s: %w", asked.User.GetName(), err))
	}
	audit.AddAuditAnnotations(ctx, "authorization.k8s.io/decision", "forbid", "authorization.k8s.io/reason", reason)
	return responsewriters.ForbiddenStatusError(asked, reason)
}

// apiError gives an error the form in which a client would get it.
func apiError(callers, bounded context.Context, verb string, t Target, err error) error {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		return err
	case callers.Err() != nil:
		return fmt.Errorf("%s %s %s/%s: %w", verb, t.path(), t.Namespace, t.Name, callers.Err())
	case bounded.Err() != nil:
		return apierrors.NewTimeoutError(fmt.Sprintf("the storage did not answer within %v: %v", callTimeout, err), 0)
	}
	return &apierrors.StatusError{ErrStatus: *responsewriters.ErrorToAPIStatus(err)}
}

// write is a call whose target was found.
type write struct {
	Target
	storage rest.Storage
	kind    schema.GroupVersionKind
	writer  user.Info
}

// served is a storage, and the kind of the objects that are written to it; empty if there is none in its version.
type served struct {
	rest.Storage
	kind schema.GroupVersionKind
}

// kinds finds the kinds of all storages, once: a new object is made to ask.
func kinds(c Config) map[schema.GroupVersion]map[string]served {
	out := map[schema.GroupVersion]map[string]served{}
	for version, storages := range c.Storages {
		out[version] = map[string]served{}
		for path, storage := range storages {
			s := served{Storage: storage}
			known, _, err := c.Scheme.ObjectKinds(storage.New())
			for _, kind := range known {
				if err == nil && kind.GroupVersion() == version {
					s.kind = kind
				}
			}
			out[version][path] = s
		}
	}
	return out
}

func (d *Door) prepare(t Target) (*write, error) {
	s := d.storages[t.Resource.GroupVersion()][t.path()]
	w := &write{Target: t, storage: s.Storage, kind: s.kind, writer: d.writer}
	switch {
	case w.storage == nil:
		return nil, apierrors.NewNotFound(t.Resource.GroupResource(), t.Name)
	case w.kind.Empty():
		return nil, w.unsupported()
	}
	return w, nil
}

func (w *write) attributes(obj, old runtime.Object, operation admission.Operation,
	options runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(
		obj, old, w.kind, w.Namespace, w.Name, w.Resource, w.Subresource, operation, options, false, w.writer,
	)
}

func (w *write) unsupported() error {
	return apierrors.NewMethodNotSupported(w.Resource.GroupResource(), w.path())
}

// checkNew clears what only the server sets, and checks the namespace.
func (w *write) checkNew(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if keeper, ok := w.storage.(rest.SubresourceObjectMetaPreserver); !ok ||
		!keeper.PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() {
		rest.WipeObjectMetaSystemFields(m)
	}
	return rest.EnsureObjectNamespaceMatchesRequestNamespace(w.Namespace, m)
}

func (w *write) checkNamed(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if m.GetNamespace() != w.Namespace || m.GetName() != w.Name {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the object %s/%s is not the one to be updated, %s/%s", m.GetNamespace(), m.GetName(), w.Namespace, w.Name,
		))
	}
	return nil
}

// carryOver keeps who manages which field as it was.
func (w *write) carryOver(changed, old runtime.Object) error {
	before, err := meta.Accessor(old)
	if err != nil {
		return err
	}
	if before.GetUID() == "" {
		return w.missing()
	}
	m, err := meta.Accessor(changed)
	if err != nil {
		return err
	}
	m.SetManagedFields(before.GetManagedFields())
	return nil
}

func (w *write) neverCreate(context.Context, runtime.Object) error { return w.missing() }

func (w *write) missing() error { return apierrors.NewNotFound(w.Resource.GroupResource(), w.Name) }

func optionsType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: kind}
}

func apiPrefix(group string) string {
	if group == "" {
		return "api"
	}
	return "apis"
}
