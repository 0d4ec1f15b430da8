package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/everynode/everynode/internal/controller/garbagecollector/graph"
)

var configMaps = schema.GroupResource{Resource: "configmaps"}

// fakeAPI holds config maps by name and writes down what it was asked.
type fakeAPI struct {
	mu      sync.Mutex
	objects map[string]*metav1.PartialObjectMetadata
	calls   []string
	// before runs ahead of each call, and may change objects.
	before func(call string)
	// noStrategicMerge refuses such patches, as servers do for custom resources.
	noStrategicMerge bool
}

func (f *fakeAPI) call(verb string, id graph.Identity) (*metav1.PartialObjectMetadata, error) {
	call := verb + " " + id.Name
	f.calls = append(f.calls, call)
	if f.before != nil {
		f.before(call)
	}
	object := f.objects[id.Name]
	if object == nil {
		return nil, apierrors.NewNotFound(configMaps, id.Name)
	}
	return object.DeepCopy(), nil
}

// Get implements api.
func (f *fakeAPI) Get(_ context.Context, id graph.Identity) (*metav1.PartialObjectMetadata, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.call("get", id)
}

// Delete implements api.
func (f *fakeAPI) Delete(_ context.Context, id graph.Identity, options metav1.DeleteOptions) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	object, err := f.call("delete "+string(*options.PropagationPolicy), id)
	if err != nil {
		return err
	}
	if p := options.Preconditions; object.UID != *p.UID || object.ResourceVersion != *p.ResourceVersion {
		return apierrors.NewConflict(configMaps, id.Name, errors.New("precondition failed"))
	}
	delete(f.objects, id.Name)
	return nil
}

// Patch implements api for the bodies of patch.go.
func (f *fakeAPI) Patch(_ context.Context, id graph.Identity, kind types.PatchType, body []byte) (*metav1.PartialObjectMetadata, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	object, err := f.call("patch", id)
	if err != nil {
		return nil, err
	}
	if f.noStrategicMerge && kind == types.StrategicMergePatchType {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonUnsupportedMediaType}}
	}
	var patch struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
			Finalizers      *[]string
			OwnerReferences []struct {
				metav1.OwnerReference
				Directive string `json:"$patch"`
			}
		}
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, err
	}
	m := patch.Metadata
	if m.UID != object.UID || (m.ResourceVersion != "" && m.ResourceVersion != object.ResourceVersion) {
		return nil, apierrors.NewConflict(configMaps, id.Name, errors.New("precondition failed"))
	}
	if kind == types.MergePatchType && m.OwnerReferences != nil {
		object.OwnerReferences = nil
	}
	for _, ref := range m.OwnerReferences {
		object.OwnerReferences = slices.DeleteFunc(object.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == ref.UID })
		if ref.Directive != "delete" {
			object.OwnerReferences = append(object.OwnerReferences, ref.OwnerReference)
		}
	}
	if m.Finalizers != nil {
		object.Finalizers = *m.Finalizers
	}
	object.ResourceVersion += "'"
	f.objects[id.Name] = object
	return object, nil
}

// Dependents implements api.
func (f *fakeAPI) Dependents(_ context.Context, owner graph.Identity) (found []graph.Identity, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, object := range f.objects {
		if slices.ContainsFunc(object.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner.UID }) {
			found = append(found, graph.ObjectOf("v1", "ConfigMap", object).Identity)
		}
	}
	return found, nil
}

// fixture is a collector over a fakeAPI, whose graph is told by hand.
type fixture struct {
	*fakeAPI
	*Controller
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c, err := New(Config{
		Resources: []Resource{{GVR: configMaps.WithVersion("v1"), GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespaced: true}},
		Informers: struct{ Informers }{},
		Metadata:  struct{ metadata.Interface }{},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{fakeAPI: &fakeAPI{objects: map[string]*metav1.PartialObjectMetadata{}}, Controller: c}
	c.api = f.fakeAPI
	return f
}

// put stores an object with uid name-1 and tells nobody.
func (f *fixture) put(name string, owners ...string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name + "-1"), ResourceVersion: "1"}}
	for _, owner := range owners {
		o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: types.UID(owner + "-1")})
	}
	f.objects[name] = o
	return o
}

// see tells the graph what an informer would.
func (f *fixture) see(names ...string) {
	for _, name := range names {
		f.handler("v1", "ConfigMap", new(bool)).OnAdd(f.objects[name].DeepCopy(), false)
	}
}

func (f *fixture) lose(name string) {
	o := f.objects[name]
	delete(f.objects, name)
	f.handler("v1", "ConfigMap", new(bool)).OnDelete(o)
}

func (f *fixture) expectCalls(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(f.calls, want) {
		t.Errorf("calls %q, want %q", f.calls, want)
	}
}

func TestDeletedOwnerNeedsNoReads(t *testing.T) {
	f := newFixture(t)
	f.put("owner")
	f.put("child", "owner")
	f.see("owner", "child")
	f.lose("owner")
	if err := f.attemptToDelete(t.Context(), "child-1"); err != nil {
		t.Fatal(err)
	}
	f.expectCalls(t, "delete Background child")
}

func TestUnseenOwnerIsReadBeforeAnythingGoes(t *testing.T) {
	f := newFixture(t)
	f.put("owner")
	f.put("child", "owner")
	f.see("child") // the owner's informer is behind
	if err := f.attemptToDelete(t.Context(), "owner-1"); !errors.Is(err, errUnseen) {
		t.Errorf("error %v, want to look again later", err)
	}
	delete(f.objects, "owner")
	if err := f.attemptToDelete(t.Context(), "owner-1"); err != nil {
		t.Fatal(err)
	}
	if err := f.attemptToDelete(t.Context(), "child-1"); err != nil {
		t.Fatal(err)
	}
	f.expectCalls(t, "get owner", "get owner", "delete Background child")
}

func TestOwnerWhoseNameWasTakenOverIsAbsent(t *testing.T) {
	f := newFixture(t)
	f.put("owner").UID = "owner-2"
	f.put("child", "owner")
	f.see("child")
	if err := f.attemptToDelete(t.Context(), "child-1"); err != nil {
		t.Fatal(err)
	}
	f.expectCalls(t, "get owner", "delete Background child")
}

// TestOwnerReplacedWhileNobodyWatched: an informer that lists again tells of an object
// that took over a name as of an update.
func TestOwnerReplacedWhileNobodyWatched(t *testing.T) {
	f := newFixture(t)
	before := f.put("owner").DeepCopy()
	f.put("child", "owner")
	f.see("owner", "child")
	f.put("owner").UID = "owner-2"
	f.handler("v1", "ConfigMap", new(bool)).OnUpdate(before, f.objects["owner"].DeepCopy())
	if err := f.attemptToDelete(t.Context(), "child-1"); err != nil {
		t.Fatal(err)
	}
	if f.objects["child"] != nil || f.deletes.Len() == 0 {
		t.Errorf("the child of the first bearer of the name: %v, %d objects are looked at", f.objects["child"], f.deletes.Len())
	}
	if f.objects["owner"] == nil {
		t.Error("the second bearer of the name is deleted")
	}
}

func TestObjectAdoptedAtTheLastMomentStays(t *testing.T) {
	f := newFixture(t)
	f.put("owner")
	f.put("other")
	f.put("child", "owner")
	f.see("owner", "other", "child")
	f.lose("owner")
	adopted := f.put("child", "owner", "other") // no event yet
	adopted.ResourceVersion = "2"
	if err := f.attemptToDelete(t.Context(), "child-1"); err != nil {
		t.Fatal(err)
	}
	f.expectCalls(t, "delete Background child", "get child", "patch child")
	if refs := f.objects["child"].OwnerReferences; len(refs) != 1 || refs[0].UID != "other-1" {
		t.Errorf("the child's owners are %v, want only the other", refs)
	}
}

func TestObjectReplacedUnderItsNameStays(t *testing.T) {
	f := newFixture(t)
	f.put("owner")
	f.put("child", "owner")
	f.see("owner", "child")
	f.lose("owner")
	f.put("child").UID = "child-2"
	if err := f.attemptToDelete(t.Context(), "child-1"); err != nil {
		t.Fatal(err)
	}
	f.expectCalls(t, "delete Background child", "get child")
	if f.objects["child"] == nil {
		t.Error("the new bearer of the name was deleted")
	}
}

func TestFailuresAreReported(t *testing.T) {
	f := newFixture(t)
	f.put("child", "owner")
	f.see("child")
	f.Controller.api = brokenAPI{f.fakeAPI}
	if err := f.attemptToDelete(t.Context(), "owner-1"); err == nil || errors.Is(err, errUnseen) {
		t.Errorf("error %v, want the API server's", err)
	}
	if err := f.attemptToDelete(t.Context(), "child-1"); err == nil {
		t.Error("an owner that could not be read was taken for absent")
	}
	if f.objects["child"] == nil {
		t.Error("the child was deleted though nobody knows about its owner")
	}
}

type brokenAPI struct{ *fakeAPI }

// Get implements api.
func (brokenAPI) Get(context.Context, graph.Identity) (*metav1.PartialObjectMetadata, error) {
	return nil, apierrors.NewInternalError(errors.New("no quorum"))
}

func TestOrphaningReleasesLateDependentsToo(t *testing.T) {
	for _, strategic := range []bool{true, false} {
		t.Run(fmt.Sprintf("strategicMerge=%v", strategic), func(t *testing.T) {
			f := newFixture(t)
			f.noStrategicMerge = !strategic
			owner := f.put("owner")
			owner.DeletionTimestamp, owner.Finalizers = &metav1.Time{}, []string{"example.com/mine", metav1.FinalizerOrphanDependents}
			f.put("first", "owner")
			f.see("owner", "first")
			f.put("late", "owner", "other") // no informer tells of it before the end
			if err := f.attemptToOrphan(t.Context(), "owner-1"); err != nil {
				t.Fatal(err)
			}
			if refs := f.objects["first"].OwnerReferences; len(refs) != 0 {
				t.Errorf("the first dependent still has the owners %v", refs)
			}
			if refs := f.objects["late"].OwnerReferences; len(refs) != 1 || refs[0].UID != "other-1" {
				t.Errorf("the late dependent's owners are %v, want only the other", refs)
			}
			if got := f.objects["owner"].Finalizers; !slices.Equal(got, []string{"example.com/mine"}) {
				t.Errorf("the owner's finalizers are %v, want another's alone", got)
			}
		})
	}
}

func TestForegroundEnds(t *testing.T) {
	f := newFixture(t)
	owner := f.put("owner")
	owner.DeletionTimestamp, owner.Finalizers = &metav1.Time{}, []string{metav1.FinalizerDeleteDependents}
	f.see("owner")
	conflicts := 0
	f.before = func(call string) {
		if call == "patch owner" && conflicts == 0 {
			conflicts++
			f.objects["owner"].ResourceVersion = "2"
		}
	}
	if err := f.attemptToDelete(t.Context(), "owner-1"); err != nil {
		t.Fatal(err)
	}
	f.expectCalls(t, "get owner", "patch owner", "get owner", "patch owner")
	if got := f.objects["owner"].Finalizers; len(got) != 0 {
		t.Errorf("finalizers %v are left", got)
	}
}
