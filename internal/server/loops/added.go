package loops

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/controller/garbagecollector"
	"github.com/everynode/everynode/internal/server/actors"
)

// How soon after a change, and how often without one, the added kinds are asked for.
// Servers of others change what they serve without telling anybody.
const (
	addedDelay    = 100 * time.Millisecond
	addedInterval = 30 * time.Second
)

// additions are the objects that add kinds to the API.
var additions = []schema.GroupVersionResource{
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
}

// addedKinds finds out which kinds are served beside our own.
type addedKinds struct {
	client  discovery.DiscoveryInterface
	objects metadata.Interface
	builtin map[schema.GroupResource]bool
	// told gets all kinds after each change, and nothing else in between.
	told chan []garbagecollector.Resource
}

func newAddedKinds(a *actors.Actor, kinds []resource.Definition) (*addedKinds, error) {
	objects, err := a.Metadata()
	if err != nil {
		return nil, err
	}
	added := &addedKinds{
		client: a.Client.Discovery(), objects: objects, told: make(chan []garbagecollector.Resource, 1),
		builtin: map[schema.GroupResource]bool{{Group: "events.k8s.io", Resource: "events"}: true},
	}
	for _, k := range kinds {
		added.builtin[k.GroupVersionResource().GroupResource()] = true
	}
	return added, nil
}

// served is a resource with what may be done with it.
type served struct {
	garbagecollector.Resource
	verbs metav1.Verbs
}

func (s served) can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(s.verbs, v) })
}

// list asks for all added resources, in all versions; the preferred one of a group comes
// first. With an error, it lists what is known nevertheless.
func (k *addedKinds) list() ([]served, error) {
	groups, lists, err := k.client.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("find out which kinds are served: %w", err)
	}
	byVersion := make(map[string]*metav1.APIResourceList, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	var out []served
	for _, g := range groups {
		versions := append([]metav1.GroupVersionForDiscovery{g.PreferredVersion}, g.Versions...)
		for i, v := range versions {
			l := byVersion[v.GroupVersion]
			if l == nil || i > 0 && v == g.PreferredVersion {
				continue
			}
			for j := range l.APIResources {
				if s, ok := servedAs(schema.GroupVersion{Group: g.Name, Version: v.Version}, &l.APIResources[j]); ok &&
					!k.builtin[s.GVR.GroupResource()] {
					out = append(out, s)
				}
			}
		}
	}
	return out, err
}

// servedAs leaves subresources out, and with them what a server of others calls a
// resource although it is a path: it would lead the control loops, and their rights,
// to objects of other kinds.
func servedAs(v schema.GroupVersion, r *metav1.APIResource) (served, bool) {
	if r.Name == "" || len(restclient.IsValidPathSegmentName(r.Name)) > 0 {
		return served{}, false
	}
	return served{garbagecollector.Resource{GVR: v.WithResource(r.Name), GVK: v.WithKind(r.Kind),
		Namespaced: r.Namespaced}, r.Verbs}, true
}

// namespaced lists what else a namespace can hold, each kind in one version.
func (k *addedKinds) namespaced(context.Context) (out []schema.GroupVersionResource, err error) {
	all, err := k.list()
	seen := map[schema.GroupResource]bool{}
	for _, s := range all {
		if resource := s.GVR.GroupResource(); s.Namespaced && s.can("list", "delete") && !seen[resource] {
			seen[resource] = true
			out = append(out, s.GVR)
		}
	}
	return out, err
}

// run tells of the added kinds until ctx ends.
func (k *addedKinds) run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	note := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	for _, a := range additions {
		informer := metadatainformer.NewFilteredMetadataInformer(k.objects, a, metav1.NamespaceAll, 0, cache.Indexers{},
			nil).Informer()
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note,
			UpdateFunc: func(_, obj any) { note(obj) }, DeleteFunc: note}); err != nil {
			return fmt.Errorf("watch %s: %w", a.Resource, err)
		}
		go informer.RunWithContext(ctx)
	}
	var last []garbagecollector.Resource
	for first := true; ; first = false {
		now, ok := k.collected(ctx, last)
		if first || ok && !slices.Equal(now, last) {
			k.tell(now)
			last = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(addedInterval):
		}
		select { // several changes come together
		case <-ctx.Done():
			return nil
		case <-time.After(addedDelay):
		}
	}
}

// collected lists what has owners or dependents. What a server of others served when it
// last answered, it still does.
func (k *addedKinds) collected(ctx context.Context, last []garbagecollector.Resource) (out []garbagecollector.Resource,
	ok bool) {
	all, err := k.list()
	failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partly {
		klog.FromContext(ctx).Error(err, "The added kinds stay as they were")
		return last, false
	}
	for _, s := range all {
		if s.can("list", "watch", "delete", "patch") {
			out = append(out, s.Resource)
		}
	}
	for _, r := range last {
		if failed[r.GVR.GroupVersion()] != nil && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out, true
}

// tell replaces what nobody has taken yet.
func (k *addedKinds) tell(now []garbagecollector.Resource) {
	select {
	case <-k.told:
	default:
	}
	k.told <- now
}
