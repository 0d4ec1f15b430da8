package loops

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/internal/testenv"
)

// mounted counts the daemons by what their nodes say that they have as a volume, and names them by their UIDs.
func (f *fleet) mounted(ctx context.Context) (refs map[string]int, uids []string, err error) {
	list, err := f.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	refs = map[string]int{}
	for i := range list.Items {
		p := &list.Items[i]
		uids = append(uids, string(p.UID))
		for _, c := range p.Status.ContainerStatuses {
			for _, m := range c.VolumeMounts {
				if m.VolumeStatus != nil && m.VolumeStatus.Image != nil {
					refs[m.VolumeStatus.Image.ImageRef]++
				}
			}
		}
	}
	slices.Sort(uids)
	return refs, uids, nil
}

// A tag that a volume names moves every half a second. All nodes mount what the canary got, also who loses its pod, and
// no pod is replaced for it.
func TestAVolumesTagThatMoves(t *testing.T) {
	t.Parallel()
	faults, err := illness.Parse([]byte("tags: {move: 500ms}"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{testenv.Start(t, testenv.SimulatedNodes(12), func(o *config.Options) { o.Faults = faults }), t, 12}
	createDaemonSet(t, f.Env, "logs")
	daemonSetSettles(t, f.Env, f.nodes)
	f.makePolicy("careful", "images: Pinned\nwaves: [{name: canary, count: 2, soak: 2s}, {name: others, nodes: {}, maxUnavailable: 2, fetch: true}]")
	f.phase(v1alpha1.PhaseComplete)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"volumes":    []any{map[string]any{"name": "rules", "image": map[string]any{"reference": "example.com/rules:live"}}},
		"containers": []any{map[string]any{"name": "c", "volumeMounts": []any{map[string]any{"name": "rules", "mountPath": "/rules"}}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Client.AppsV1().DaemonSets("default").Patch(t.Context(), "logs", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := f.phase(v1alpha1.PhaseComplete)
	refs, before, err := f.mounted(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	of := slices.Collect(maps.Keys(refs))
	if len(refs) != 1 || refs[of[0]] != 12 || !strings.HasPrefix(of[0], "example.com/rules@sha256:") {
		t.Fatalf("the daemons mount %v, want one digest on all; the rollout says %+v", refs, r.Status.Images)
	}
	pinned := v1alpha1.PinnedImage{Image: "example.com/rules:live", Digest: strings.TrimPrefix(of[0], "example.com/rules@")}
	at := slices.IndexFunc(r.Status.Images.Templates, func(t v1alpha1.PinnedTemplate) bool { return slices.Contains(t.Images, pinned) })
	if at < 0 || r.Status.Images.Message != "" {
		t.Errorf("the rollout says %+v, want %v", r.Status.Images, pinned)
	}
	time.Sleep(2 * time.Second)
	if _, after, err := f.mounted(t.Context()); err != nil || !slices.Equal(before, after) {
		t.Errorf("pods were replaced after the rollout (%v): %v", err, after)
	}
	err = f.Client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.Eventually("all mount the same again", func(ctx context.Context) error {
		again, uids, err := f.mounted(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(uids, func(uid string) bool { return slices.Contains(before, uid) }) || again[of[0]] != 12 || len(again) != 1 {
			return fmt.Errorf("%d pods mount %v", len(uids), again)
		}
		return nil
	})
}
