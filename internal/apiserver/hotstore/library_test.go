package hotstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	etcd3testing "k8s.io/apiserver/pkg/storage/etcd3/testing"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
)

// The tests here are the library's own, of its storage and of its watch cache.

var (
	examples     = runtime.NewScheme()
	exampleCodec runtime.Codec
)

func init() {
	metav1.AddToGroupVersion(examples, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(examples))
	utilruntime.Must(examplev1.AddToScheme(examples))
	pb := protobuf.NewSerializer(examples, examples)
	exampleCodec = serializer.NewCodecFactory(examples).CodecForVersions(pb, pb, schema.GroupVersions{examplev1.SchemeGroupVersion}, nil)
}

func newExamplePod() runtime.Object { return &example.Pod{} }

func examplePodAttributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := obj.(*example.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("not a pod: %T", obj)
	}
	return pod.Labels, fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy), "status.phase": string(pod.Status.Phase),
	}, nil
}

// fixture is a cache on a real etcd.
type fixture struct {
	*Cache
	server *etcd3testing.EtcdTestServer
	raw    storage.Interface
	// short says of a renewal whether it takes the short way, if it can; nil for never.
	short func() bool
}

func newFixture(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	server, _ := etcd3testing.NewUnsecuredEtcd3TestClientServer(t)
	t.Cleanup(func() { _ = server.V3Client.Close() })
	compactor := etcd3.NewCompactor(server.V3Client.Client, 0, clock.RealClock{}, nil)
	t.Cleanup(compactor.Stop)
	decoder := NewDecoder(exampleCodec, newExamplePod)
	raw, err := etcd3.New(server.V3Client, compactor, decoder.Codec(), newExamplePod, func() runtime.Object { return &example.PodList{} },
		etcd3testing.PathPrefix(), "/pods/", schema.GroupResource{Resource: "pods"}, identity.NewEncryptCheckTransformer(),
		etcd3.NewDefaultLeaseManagerConfig(), decoder, storage.APIObjectVersioner{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	config := Config{
		GroupResource: schema.GroupResource{Resource: "pods"}, ResourcePrefix: "/pods/", Storage: raw, Decoder: decoder,
		Database: apistorage.NewFeed(server.V3Client.Client, etcd3testing.PathPrefix(), "/pods/"), New: newExamplePod,
		NewList: func() runtime.Object { return &example.PodList{} }, Attributes: examplePodAttributes, History: 1000, Clock: clock.RealClock{},
	}
	if change != nil {
		change(&config)
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	waitReady(t, c)
	return &fixture{Cache: c, server: server, raw: raw}
}

func waitReady(t *testing.T, c *Cache) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return c.Ready(), nil }); err != nil {
		t.Fatalf("the cache is not ready: %v", err)
	}
}

func byNode(c *Config) {
	c.Triggers = storage.IndexerFuncs{"spec.nodeName": func(obj runtime.Object) string { return obj.(*example.Pod).Spec.NodeName }}
	c.Indexers = &cache.Indexers{
		"f:spec.nodeName":      func(obj any) ([]string, error) { return []string{obj.(*example.Pod).Spec.NodeName}, nil },
		"f:metadata.namespace": func(obj any) ([]string, error) { return []string{obj.(*example.Pod).Namespace}, nil },
	}
}

func (f *fixture) increase(ctx context.Context, t *testing.T) int64 {
	response, err := f.server.V3Client.Put(ctx, "increaseRV", "ok")
	if err != nil {
		t.Fatal(err)
	}
	return response.Header.Revision
}

// compact forgets old versions in the database, through the compactor of the library.
func (f *fixture) compact(ctx context.Context, t *testing.T, version string) {
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	current, _, _, err := etcd3.Compact(ctx, f.server.V3Client.Client, 0, int64(revision))
	if err != nil {
		_, _, _, err = etcd3.Compact(ctx, f.server.V3Client.Client, current, int64(revision))
	}
	if err != nil {
		t.Fatal(err)
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.ListFromCacheSnapshot) {
		return // Then nobody looks what was compacted.
	}
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		return f.CompactRevision() == int64(revision), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// forget forgets old events too, as if there had been many since.
func (f *fixture) forget(ctx context.Context, t *testing.T, version string) {
	f.compact(ctx, t, version)
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.waitUntil(ctx, revision); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history.begin(revision)
}

func nothing(context.Context, *testing.T, string) {}
func noCalls(*testing.T, uint64, uint64)          {}
func withSnapshots(t *testing.T, on bool) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ListFromCacheSnapshot, on)
}

func TestLibraryWrites(t *testing.T) {
	for name, test := range map[string]func(context.Context, *testing.T, storage.Interface){
		"Create": func(ctx context.Context, t *testing.T, s storage.Interface) {
			storagetesting.RunTestCreate(ctx, t, s, nothing)
		},
		"CreateWithTTL":                          storagetesting.RunTestCreateWithTTL,
		"CreateWithKeyExist":                     storagetesting.RunTestCreateWithKeyExist,
		"UnconditionalDelete":                    storagetesting.RunTestUnconditionalDelete,
		"ConditionalDelete":                      storagetesting.RunTestConditionalDelete,
		"DeleteWithSuggestion":                   storagetesting.RunTestDeleteWithSuggestion,
		"DeleteWithSuggestionAndConflict":        storagetesting.RunTestDeleteWithSuggestionAndConflict,
		"DeleteWithSuggestionOfDeletedObject":    storagetesting.RunTestDeleteWithSuggestionOfDeletedObject,
		"ValidateDeletionWithSuggestion":         storagetesting.RunTestValidateDeletionWithSuggestion,
		"ValidateDeletionWithOnlySuggestion":     storagetesting.RunTestValidateDeletionWithOnlySuggestionValid,
		"DeleteWithConflict":                     storagetesting.RunTestDeleteWithConflict,
		"PreconditionalDeleteWithSuggestion":     storagetesting.RunTestPreconditionalDeleteWithSuggestion,
		"PreconditionalDeleteWithSuggestionPass": storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass,
		"GuaranteedUpdate": func(ctx context.Context, t *testing.T, s storage.Interface) {
			storagetesting.RunTestGuaranteedUpdateWithTTL(ctx, t, s)
		},
		"GuaranteedUpdateWithConflict":              storagetesting.RunTestGuaranteedUpdateWithConflict,
		"GuaranteedUpdateWithSuggestionAndConflict": storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict,
		"KeySchema": storagetesting.RunTestKeySchema,
	} {
		t.Run(name, func(t *testing.T) { test(t.Context(), t, newFixture(t, nil)) })
	}
}

func TestLibraryReads(t *testing.T) {
	withSnapshots(t, false)
	for name, test := range map[string]func(context.Context, *testing.T, *fixture){
		"Get":        func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestGet(ctx, t, f) },
		"ListPaging": func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestListPaging(ctx, t, f) },
		"GetListNonRecursive": func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestGetListNonRecursive(ctx, t, f.increase, f)
		},
		"GetListRecursivePrefix": func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestGetListRecursivePrefix(ctx, t, f)
		},
		"List": func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestList(ctx, t, f, f.compact, true, f.server.V3Client.Kubernetes.(*storagetesting.KubernetesRecorder))
		},
		"ConsistentList": func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestConsistentList(ctx, t, f, f.increase, true, true, false)
		},
		"ListContinuation": func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestListContinuation(ctx, t, f, noCalls)
		},
		"ListPaginationRare": func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestListPaginationRareObject(ctx, t, f, noCalls)
		},
		"ListContinuationFilter": func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestListContinuationWithFilter(ctx, t, f, noCalls)
		},
		"ListInconsistentContinuation": func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestListInconsistentContinuation(ctx, t, f.raw, f.compact)
		},
	} {
		t.Run(name, func(t *testing.T) { test(t.Context(), t, newFixture(t, nil)) })
	}
	t.Run("NamespaceScopedList", func(t *testing.T) { storagetesting.RunTestNamespaceScopedList(t.Context(), t, newFixture(t, byNode)) })
	t.Run("CompactRevision", func(t *testing.T) {
		withSnapshots(t, true)
		f := newFixture(t, nil)
		storagetesting.RunTestCompactRevision(t.Context(), t, f, f.increase, f.compact)
	})
	for _, sizes := range []bool{true, false} {
		t.Run(fmt.Sprintf("Stats/%v", sizes), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SizeBasedListCostEstimate, sizes)
			storagetesting.RunTestStats(t.Context(), t, newFixture(t, nil), exampleCodec, identity.NewEncryptCheckTransformer(), sizes)
		})
	}
}

func TestLibraryWatches(t *testing.T) {
	clusterScoped := func(c *Config) { byNode(c) }
	for name, test := range map[string]struct {
		change func(*Config)
		run    func(context.Context, *testing.T, *fixture)
	}{
		"Watch": {nil, func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestWatch(ctx, t, f) }},
		"WatchFromZero": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestWatchFromZero(ctx, t, f, f.forget)
		}},
		"DeleteTriggerWatch": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestDeleteTriggerWatch(ctx, t, f)
		}},
		"WatchFromNonZero": {nil, func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestWatchFromNonZero(ctx, t, f) }},
		"DelayedDelivery": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestDelayedWatchDelivery(ctx, t, f)
		}},
		"ContextCancel": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestWatchContextCancel(ctx, t, f)
		}},
		"Timeout": {nil, func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestWatcherTimeout(ctx, t, f) }},
		"DeleteHasLatestRV": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV(ctx, t, f)
		}},
		"Initialization": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestWatchInitializationSignal(ctx, t, f)
		}},
		"ClusterScoped": {clusterScoped, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestClusterScopedWatch(ctx, t, f)
		}},
		"NamespaceScoped": {byNode, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestNamespaceScopedWatch(ctx, t, f)
		}},
		"Bookmarks": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, f, true)
		}},
		"BookmarksVersion": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion(ctx, t, f)
		}},
		"InitialEventsOfOld": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunSendInitialEventsBackwardCompatibility(ctx, t, f)
		}},
		"Semantics": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunWatchSemantics(ctx, t, &seenWrites{f})
		}},
		"SemanticsOfInitial": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunWatchSemanticInitialEventsExtended(ctx, t, &seenWrites{f})
		}},
		"MatchSingle": {nil, func(ctx context.Context, t *testing.T, f *fixture) {
			storagetesting.RunWatchListMatchSingle(ctx, t, &seenWrites{f})
		}},
	} {
		t.Run(name, func(t *testing.T) { test.run(t.Context(), t, newFixture(t, test.change)) })
	}
}

// seenWrites waits until the cache shows what was created, as the library's tests of its
// cache do.
type seenWrites struct{ *fixture }

func (s *seenWrites) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := s.fixture.Create(ctx, key, obj, out, ttl); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		seen := newExamplePod()
		err := s.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, seen)
		if err != nil && !storage.IsNotFound(err) {
			return false, err
		}
		return err == nil && apiequality.Semantic.DeepEqual(seen, out), nil
	})
}

// TestLibraryUnreadable deletes what cannot be decoded.
func TestLibraryUnreadable(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AllowUnsafeMalformedObjectDeletion, true)
	t.Run("suggestion", func(t *testing.T) {
		storagetesting.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(t.Context(), t, newFixture(t, nil))
	})
}
