package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
)

// A key that does not work may reach so many nodes, and these are to have the old content again that soon.
const (
	canaries   = 3
	mostToBack = time.Minute
)

// conf is the ConfigMap, and confKey its only key.
const (
	conf    = "agent"
	confKey = "agent.conf"
)

// withContent makes the ConfigMap a part of revisions.
const withContent = `
waves: [{name: canary, count: 3, soak: 10s}, {name: others, nodes: {}, maxUnavailable: 20%}]
failure: {max: 1, min: 2, then: Rollback}
content: {settle: 1s}`

// badKey is what no container works with, as an item of what ails simulated nodes.
const badKey = `faults: [{name: bad configuration, badContent: {key: ` + confKey + `, value: bad, exitCode: 2}}]`

// spoiled is what became of a key that does not work.
type spoiled struct {
	plan, back, mended time.Duration
	touched            int
}

// runContent changes a ConfigMap that all nodes mount to what does not work, and then to what does.
func runContent(ctx context.Context, o options, nodes []int) error {
	fmt.Println(machine())
	fmt.Printf("\nA ConfigMap is edited to what no container works with, and then to what all do; seconds by the clock. "+
		"Policy: %d canaries, 10 s of soaking, back after 2 failures; then 20 %% of the others at a time.\n\n", canaries)
	fmt.Println("| nodes | plan | reached by the bad key | old content everywhere again | good key everywhere |")
	fmt.Println("|------:|-----:|-----------------------:|-----------------------------:|--------------------:|")
	for _, o.nodes = range nodes {
		r, err := measureContent(ctx, o)
		if err != nil {
			return fmt.Errorf("change the content of %d nodes: %w", o.nodes, err)
		}
		fmt.Printf("| %d | %.1f | %d | %.1f | %.1f |\n",
			o.nodes, r.plan.Seconds(), r.touched, r.back.Seconds(), r.mended.Seconds())
		if r.touched != canaries || r.back > mostToBack {
			return fmt.Errorf("of %d nodes a bad key reached %d, and %v passed until all had the old content: "+
				"want %d, and %v at most", o.nodes, r.touched, r.back.Round(time.Second), canaries, mostToBack)
		}
	}
	return nil
}

func measureContent(ctx context.Context, o options) (r spoiled, err error) {
	ills, err := os.CreateTemp("", "everynode-scale-*.yaml")
	if err != nil {
		return r, fmt.Errorf("make the file of faults: %w", err)
	}
	defer os.Remove(ills.Name())
	_, err = ills.WriteString(badKey)
	if err = errors.Join(err, ills.Close()); err != nil {
		return r, fmt.Errorf("write the file of faults: %w", err)
	}
	o.more, o.mounts = []string{"--faults", ills.Name()}, true
	b, cleanUp, err := newBench(ctx, o)
	if err != nil {
		return r, err
	}
	defer cleanUp()
	own, err := everynode.NewForConfig(b.config)
	if err != nil {
		return r, err
	}
	c := contentBench{b, own.DaemonSetRollouts("default")}
	err = c.prepare(ctx, own)
	if err != nil {
		return r, err
	}
	before, err := c.pods(ctx)
	if err != nil {
		return r, err
	}
	r.plan, err = c.plan(ctx)
	if err != nil {
		return r, err
	}
	r.back, err = c.edit(ctx, "bad", v1alpha1.PhaseRolledBack)
	if err != nil {
		return r, err
	}
	after, err := c.pods(ctx)
	if err != nil {
		return r, err
	}
	for node, uid := range before {
		if after[node] != uid {
			r.touched++
		}
	}
	err = c.untouched(ctx)
	if err != nil {
		return r, err
	}
	r.mended, err = c.edit(ctx, "good again", v1alpha1.PhaseComplete)
	return r, err
}

// contentBench is a bench whose DaemonSet mounts the ConfigMap, under a policy.
type contentBench struct {
	*bench
	rollouts *everynode.DaemonSetRollouts
}

// prepare has the content of the ConfigMap on all nodes.
func (c contentBench) prepare(ctx context.Context, own *everynode.Client) error {
	err := c.nodesReady(ctx)
	if err != nil {
		return err
	}
	err = c.makeConf(ctx)
	if err != nil {
		return err
	}
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}}
	err = yaml.UnmarshalStrict([]byte(withContent), &p.Spec)
	if err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	_, err = own.RolloutPolicies("default").Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the policy: %w", err)
	}
	err = c.apply(ctx, updated)
	if err != nil {
		return fmt.Errorf("make the DaemonSet: %w", err)
	}
	return c.phase(ctx, "", v1alpha1.PhaseComplete)
}

// makeConf makes the ConfigMap, and lets the DaemonSet controller read it.
func (b *bench) makeConf(ctx context.Context) error {
	_, err := b.client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "content"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "everynode:content"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: "daemon-set-controller"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("give the right on ConfigMaps: %w", err)
	}
	_, err = b.client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: conf}, Data: map[string]string{confKey: "good"},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the ConfigMap: %w", err)
	}
	return nil
}

// mountConf has the pods of a DaemonSet mount it.
func mountConf(ds *appsv1.DaemonSet) {
	of := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: conf}}
	ds.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: of}}}
}

// plan asks for the plan of the bad key, which must name the DaemonSet, the key and how many nodes there are.
func (c contentBench) plan(ctx context.Context) (took time.Duration, err error) {
	manifest := filepath.Join(c.dir, "bad.yaml")
	text := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {%s: bad}\n", conf, confKey)
	err = os.WriteFile(manifest, []byte(text), 0o600)
	if err != nil {
		return 0, fmt.Errorf("write what is planned: %w", err)
	}
	cmd := exec.CommandContext(ctx, c.binary, "plan", "-f", manifest)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(c.dir, "data", "kubeconfig"))
	begin := time.Now()
	said, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 2 { // changes were found
		return 0, fmt.Errorf("plan ended with %d (%w): %s", code, err, said)
	}
	took = time.Since(begin)
	plain := bytes.ReplaceAll(said, []byte(","), nil) // of large numbers
	for _, want := range []string{
		"DaemonSet default/" + updated, "ConfigMap " + conf + " key " + confKey,
		fmt.Sprintf("%d nodes: %d change", c.nodes, c.nodes), "canary",
	} {
		if !bytes.Contains(plain, []byte(want)) {
			return 0, fmt.Errorf("the plan does not say %q: %s", want, said)
		}
	}
	return took, nil
}

// edit writes the ConfigMap, and waits until its change has ended in a phase, with all pods available.
func (c contentBench) edit(ctx context.Context, value string, end v1alpha1.Phase) (took time.Duration, err error) {
	r, err := c.rollouts.Get(ctx, updated, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("read the rollout: %w", err)
	}
	begin := time.Now()
	_, err = c.client.CoreV1().ConfigMaps("default").Patch(ctx, conf, types.MergePatchType,
		fmt.Appendf(nil, `{"data":{%q:%q}}`, confKey, value), metav1.PatchOptions{})
	if err != nil {
		return 0, fmt.Errorf("edit the ConfigMap: %w", err)
	}
	err = c.phase(ctx, r.Status.TargetRevision, end)
	return time.Since(begin), err
}

// phase waits until a rollout to another target than one has ended, and all pods have the stable content.
func (c contentBench) phase(ctx context.Context, but string, end v1alpha1.Phase) error {
	return c.until(ctx, "the rollout to be "+string(end), func(ctx context.Context) (bool, error) {
		list, err := c.rollouts.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return false, err
		}
		s := &list.Items[0].Status
		if s.Phase != end || s.TargetRevision == but || content.IDOf(s.TargetRevision) == "" {
			return false, nil
		}
		ds, err := c.client.AppsV1().DaemonSets("default").Get(ctx, updated, metav1.GetOptions{})
		if err != nil || s.DaemonSetGeneration != ds.Generation || ds.Status.NumberAvailable != int32(c.nodes) {
			return false, err
		}
		pods, err := c.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{
			LabelSelector: content.RevisionLabel + "=" + s.StableRevision, ResourceVersion: "0",
		})
		return err == nil && len(pods.Items) == c.nodes, err
	})
}

// pods are the UIDs of the pods, by their nodes.
func (c contentBench) pods(ctx context.Context) (map[string]types.UID, error) {
	list, err := c.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + updated})
	if err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	out := map[string]types.UID{}
	for i := range list.Items {
		out[list.Items[i].Spec.NodeName] = list.Items[i].UID
	}
	return out, nil
}

// untouched wants the ConfigMap to be as its author wrote it.
func (c contentBench) untouched(ctx context.Context) error {
	m, err := c.client.CoreV1().ConfigMaps("default").Get(ctx, conf, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the ConfigMap: %w", err)
	}
	if m.Data[confKey] != "bad" || len(m.Data) != 1 || len(m.Labels)+len(m.Annotations)+len(m.OwnerReferences) > 0 {
		return fmt.Errorf("the ConfigMap is not as its author wrote it: %s", strings.ReplaceAll(m.String(), "\n", " "))
	}
	return nil
}
