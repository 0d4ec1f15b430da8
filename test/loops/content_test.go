package loops

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/internal/testenv"
	"github.com/everynode/everynode/internal/testenv/secrecy"
)

const withContent = `
waves: [{name: canary, count: 3, soak: 5s}]
failure: {max: 1, min: 2, then: Rollback}
content: {secrets: Referenced, settle: 1s}`

const badContent = `faults: [{name: bad configuration, badContent: {key: agent.conf, value: bad, exitCode: 2, message: "line 1: bad"}}]`

// allow gives the DaemonSet controller a role in the namespace.
func (f *fleet) allow(role string) {
	f.t.Helper()
	_, err := f.Client.RbacV1().RoleBindings("default").Create(f.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(role, ":", "-")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "daemon-set-controller"}},
	}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
}

// write sets a key of the ConfigMap.
func (f *fleet) write(value string) {
	f.t.Helper()
	body := fmt.Sprintf(`{"data":{"agent.conf":%q}}`, value)
	if _, err := f.Client.CoreV1().ConfigMaps("default").Patch(f.t.Context(), "agent", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// read counts the pods by the value of the key in what they refer to, and by their UIDs.
func (f *fleet) read(ctx context.Context) (values map[string]int, uids map[types.UID]bool, err error) {
	pods, err := f.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	values, uids = map[string]int{}, map[types.UID]bool{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		uids[p.UID] = true
		for _, ref := range content.Refs(&p.Spec) {
			if ref.Kind != content.ConfigMap || !strings.HasPrefix(ref.Name, "agent") {
				continue // the cluster's own CA
			}
			m, err := f.Client.CoreV1().ConfigMaps("default").Get(ctx, ref.Name, metav1.GetOptions{})
			if err != nil {
				return nil, nil, err
			}
			values[m.Data["agent.conf"]]++
		}
	}
	return values, uids, nil
}

func (f *fleet) reads(want map[string]int) (uids map[types.UID]bool) {
	f.t.Helper()
	f.Eventually(fmt.Sprintf("pods read %v", want), func(ctx context.Context) error {
		got, all, err := f.read(ctx)
		if uids = all; err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("they read %v", got)
		}
		return err
	})
	return uids
}

func startContentFleet(t *testing.T, nodes int, change ...func(*config.Options)) *fleet {
	faults, err := illness.Parse([]byte(badContent))
	if err != nil {
		t.Fatal(err)
	}
	change = append(change, testenv.SimulatedNodes(nodes), func(o *config.Options) { o.Faults = faults })
	f := &fleet{testenv.Start(t, change...), t, int32(nodes)}
	ctx, core := t.Context(), f.Client.CoreV1()
	if _, err := core.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Data: map[string]string{"agent.conf": "good"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Data: map[string][]byte{"token": []byte(secretValue)}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	createDaemonSet(t, f.Env, "logs")
	patchDaemonSet(t, f.Env, `{"spec":{"template":{"spec":{"volumes":[{"name":"c","configMap":{"name":"agent"}},{"name":"s","secret":{"secretName":"agent"}}]}}}}`)
	daemonSetSettles(t, f.Env, f.nodes)
	return f
}

// secretValue is like nothing else, so that it can be looked for.
const secretValue = "xyzzy-plugh-4711"

// A bad key reaches the canaries and nobody else, and they go back; the author's object stays as it is.
func TestConfigChangeThatGoesWrong(t *testing.T) {
	t.Parallel()
	f := startContentFleet(t, 10)
	f.makePolicy("careful", withContent)
	f.Eventually("the rollout says which right is missing", func(ctx context.Context) error {
		r, err := f.rollout(ctx)
		if err == nil && (r.Status.Content == nil || !strings.Contains(r.Status.Content.Message, "everynode:content")) {
			err = fmt.Errorf("it says %+v", r.Status.Content)
		}
		return err
	})
	f.allow("everynode:content")
	f.allow("everynode:content-secrets")
	f.Eventually("each pod refers to copies", func(ctx context.Context) error {
		pods, err := f.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: content.RevisionLabel})
		if err == nil && len(pods.Items) != 10 {
			err = fmt.Errorf("%d do", len(pods.Items))
		}
		return err
	})
	r := f.phase(v1alpha1.PhaseComplete)
	stable, before := r.Status.StableRevision, f.reads(map[string]int{"good": 10})
	f.write("bad")
	r = f.phase(v1alpha1.PhaseRolledBack, "failed on", "exit code 2")
	after := f.reads(map[string]int{"good": 10})
	touched := 0
	for uid := range before {
		if !after[uid] {
			touched++
		}
	}
	if touched != 3 {
		t.Errorf("%d nodes were touched, want the three canaries", touched)
	}
	if r.Status.StableRevision != stable || r.Status.Content == nil || !slices.Equal(r.Status.Content.Changes, []string{"ConfigMap agent: agent.conf"}) {
		t.Errorf("stable is %s and was %s; content is %+v", r.Status.StableRevision, stable, r.Status.Content)
	}
	m, err := f.Client.CoreV1().ConfigMaps("default").Get(t.Context(), "agent", metav1.GetOptions{})
	if err != nil || m.Data["agent.conf"] != "bad" || len(m.Labels)+len(m.Annotations)+len(m.OwnerReferences) > 0 {
		t.Errorf("the author's object is %v, %v", m, err)
	}
	revisions, err := f.Client.AppsV1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(revisions.Items) != 2 {
		t.Errorf("there are %d ControllerRevisions, %v; want those of the two templates", len(revisions.Items), err)
	}
	f.write("mended")
	f.reads(map[string]int{"mended": 10})
	f.phase(v1alpha1.PhaseComplete)
}

// allButSecrets records what is sent and answered, but for Secrets: of these only that.
const allButSecrets = `
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: Metadata, resources: [{group: "", resources: [secrets]}]}
- {level: RequestResponse}`

// A Secret's value is in nothing that somebody else could read.
func TestSecretOfARevisionIsToldNowhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	audit, policy := filepath.Join(dir, "audit.log"), filepath.Join(dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(allButSecrets), 0o600); err != nil {
		t.Fatal(err)
	}
	f := startContentFleet(t, 3, func(o *config.Options) {
		o.API.Audit.PolicyFile, o.API.Audit.LogOptions.Path = policy, audit
	})
	f.allow("everynode:content")
	f.allow("everynode:content-secrets")
	f.makePolicy("careful", withContent)
	f.Eventually("each pod refers to copies", func(ctx context.Context) error {
		pods, err := f.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: content.RevisionLabel})
		if err == nil && len(pods.Items) != 3 {
			err = fmt.Errorf("%d do", len(pods.Items))
		}
		return err
	})
	f.phase(v1alpha1.PhaseComplete) // what changes is told in comparison with the stable revision
	const fresh = secretValue + "-2"
	body := fmt.Sprintf(`{"stringData":{"token":%q}}`, fresh)
	if _, err := f.Client.CoreV1().Secrets("default").Patch(t.Context(), "agent", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Eventually("an event names the key", func(context.Context) error {
		if told := f.events("RolloutContentChanged"); !slices.ContainsFunc(told, func(m string) bool { return strings.Contains(m, "Secret agent: token") }) {
			return fmt.Errorf("events say %q", told)
		}
		return nil
	})
	f.phase(v1alpha1.PhaseComplete)
	for _, path := range []string{
		"/api/v1/events", "/api/v1/pods", "/api/v1/configmaps", "/apis/apps/v1/daemonsets", "/apis/apps/v1/controllerrevisions",
		"/apis/everynode.io/v1alpha1/daemonsetrollouts", "/apis/everynode.io/v1alpha1/rolloutpolicies", "/metrics",
	} {
		raw, err := f.Client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if err != nil {
			t.Errorf("read %s: %v", path, err)
		}
		wantNoSecret(t, path, raw)
	}
	f.Stop()
	raw, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(raw, []byte("secrets")) {
		t.Error("the audit log does not speak of Secrets")
	}
	wantNoSecret(t, "the audit log", raw)
}

func wantNoSecret(t *testing.T, where string, raw []byte) {
	t.Helper()
	secrecy.Hides(t, where, raw, secretValue)
}
