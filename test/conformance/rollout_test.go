package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/server/config"
)

const (
	ownKinds = "/apis/everynode.io/v1alpha1"
	policies = ownKinds + "/namespaces/default/rolloutpolicies"
	rollouts = ownKinds + "/namespaces/default/daemonsetrollouts"
)

// ownKind is a manifest of one of our kinds, with its spec as JSON.
func ownKind(kind, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"everynode.io/v1alpha1","kind":%q,"metadata":{"name":%q},"spec":%s}`, kind, name, spec)
}

func TestOwnKinds(t *testing.T) {
	s := startWith(t, func(o *config.Options) { o.NoDaemonSetController = true }) // It writes both kinds, too.
	t.Run("names and subresources", func(t *testing.T) {
		var got metav1.APIResourceList
		if err := json.Unmarshal(s.send(t, "GET", ownKinds, asJSON, "").want(t, 200).raw, &got); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range got.APIResources {
			names = append(names, strings.Join(append([]string{r.Name, r.SingularName, r.Kind}, append(r.ShortNames, r.Categories...)...), " "))
			if r.Namespaced == strings.HasPrefix(r.Name, "nodestartups") {
				t.Errorf("%s is in a namespace: %v", r.Name, r.Namespaced)
			}
		}
		slices.Sort(names)
		want := []string{
			"daemonsetrollouts daemonsetrollout DaemonSetRollout dsr rollouts", "daemonsetrollouts/status  DaemonSetRollout",
			"daemonsetvariants daemonsetvariant DaemonSetVariant dsv", "daemonsetvariants/status  DaemonSetVariant",
			"nodestartups nodestartup NodeStartup nst", "nodestartups/status  NodeStartup",
			"rolloutpolicies rolloutpolicy RolloutPolicy rp rollouts", "rolloutpolicies/status  RolloutPolicy",
		}
		if !slices.Equal(names, want) {
			t.Errorf("resources are\n%s", strings.Join(names, "\n"))
		}
	})
	t.Run("defaults", func(t *testing.T) {
		s.send(t, "POST", policies, asJSON, ownKind("RolloutPolicy", "filled", `{"waves":[{"name":"a","count":1}],"windows":[{"from":"09:00","to":"10:00"}]}`)).want(t, 201).expect(t, map[string]string{
			"spec.waves":      `[{"approval":"Automatic","count":1,"name":"a"}]`,
			"spec.failure":    `{"max":"5%","min":1,"restarts":3,"startDeadline":"10m","then":"Halt"}`,
			"spec.nodeFaults": `{"max":"20%"}`,
			"spec.windows":    `[{"from":"09:00","timeZone":"UTC","to":"10:00"}]`,
		})
		s.send(t, "POST", ownKinds+"/nodestartups", asJSON, ownKind("NodeStartup", "filled", `{"groups":[{"daemonSets":[{"namespace":"a","name":"b"}]}]}`)).
			want(t, 201).expect(t, map[string]string{"spec": `{"gate":"Join","groups":[{"daemonSets":[{"name":"b","namespace":"a"}],"then":"Wait"}]}`})
		s.send(t, "POST", rollouts, asJSON, ownKind("DaemonSetRollout", "filled", `{}`)).want(t, 201).expect(t, map[string]string{"spec": `{}`})
	})
	t.Run("what is refused is named by its path", func(t *testing.T) {
		s.send(t, "POST", policies, asJSON, ownKind("RolloutPolicy", "bad", `{"waves":[{"name":"a","percent":101},{"name":"a","count":1}]}`)).says(t, 422, "Invalid",
			`RolloutPolicy.everynode.io "bad" is invalid: [spec.waves[0].percent: Invalid value: 101: must be at most 100, spec.waves[1].name: Duplicate value: "a"]`)
		s.send(t, "POST", ownKinds+"/nodestartups", asJSON, ownKind("NodeStartup", "bad", `{"groups":[{"daemonSets":[{"namespace":"a","name":"b"}],"timeout":"-1s"}],"gate":"Continuous"}`)).says(t, 422, "Invalid",
			`NodeStartup.everynode.io "bad" is invalid: [spec.gate: Unsupported value: "Continuous": supported values: "Join", "None", spec.groups[0].timeout: Invalid value: "-1s": must be at least 1s]`)
		s.send(t, "POST", rollouts, asJSON, ownKind("DaemonSetRollout", "bad", `{"approved":{"revision":"b","step":"a"}}`)).says(t, 422, "Invalid",
			`DaemonSetRollout.everynode.io "bad" is invalid: spec.approved.digest: Invalid value: "": must be status.targetDigest of the rollout; everynode rollout approve, retry and abort write it`)
		s.send(t, "POST", policies+"?fieldValidation=Strict", asJSON, ownKind("RolloutPolicy", "bad", `{"wave":[]}`)).says(t, 400, "BadRequest",
			`RolloutPolicy in version "v1alpha1" cannot be handled as a RolloutPolicy: strict decoding error: unknown field "spec.wave"`)
	})
	t.Run("a time zone that nobody knows is warned of", func(t *testing.T) {
		r := s.send(t, "POST", policies, asJSON, ownKind("RolloutPolicy", "zone", `{"windows":[{"from":"09:00","to":"10:00","timeZone":"Europe/Berlyn"}]}`)).want(t, 201)
		if len(r.warnings) != 1 || !strings.HasPrefix(r.warnings[0], "this policy cannot be followed: spec.windows[0].timeZone: Invalid value") {
			t.Errorf("the warnings are %q", r.warnings)
		}
	})
	t.Run("spec and status leave each other alone", func(t *testing.T) {
		s.send(t, "POST", rollouts, asJSON, `{"apiVersion":"everynode.io/v1alpha1","kind":"DaemonSetRollout","metadata":{"name":"two"},"status":{"phase":"Halted"}}`).
			want(t, 201).expect(t, map[string]string{"status": `{}`, "metadata.generation": `1`})
		s.send(t, "PATCH", rollouts+"/two/status", mergePatch, `{"spec":{"paused":true},"status":{"phase":"Soaking"}}`).
			want(t, 200).expect(t, map[string]string{"spec": `{}`, "status": `{"phase":"Soaking"}`, "metadata.generation": `1`})
		s.send(t, "PATCH", rollouts+"/two", mergePatch, `{"spec":{"paused":true},"status":{"phase":"Halted"}}`).
			want(t, 200).expect(t, map[string]string{"spec": `{"paused":true}`, "status": `{"phase":"Soaking"}`, "metadata.generation": `2`})
		s.send(t, "PATCH", rollouts+"/two", mergePatch, `{"metadata":{"labels":{"a":"b"}}}`).want(t, 200).expect(t, map[string]string{"metadata.generation": `2`})
	})
	t.Run("fields have managers", func(t *testing.T) {
		apply := func(manager, spec string) reply {
			return s.send(t, "PATCH", policies+"/applied?fieldManager="+manager, serverApply, ownKind("RolloutPolicy", "applied", spec))
		}
		apply("one", `{"domains":[{"key":"rack","maxUnavailable":1}],"pace":{"nodesPerMinute":5}}`).want(t, 201)
		apply("two", `{"domains":[{"key":"zone","maxUnavailable":"10%"}]}`).want(t, 200).expect(t, map[string]string{
			"spec.domains": `[{"key":"rack","maxUnavailable":1},{"key":"zone","maxUnavailable":"10%"}]`,
		})
		if r := apply("two", `{"pace":{"nodesPerMinute":6}}`); r.code != 409 {
			t.Errorf("a field of another manager is changed: %d %s", r.code, r.raw)
		}
		apply("one", `{"domains":[{"key":"rack","maxUnavailable":1}]}`).want(t, 200).expect(t, map[string]string{"spec.pace": `{}`})
	})
	t.Run("what is applied twice changes nothing", func(t *testing.T) {
		const spec = `{"waves":[{"name":"a","count":1,"soak":"90s"}],"failure":{"startDeadline":"5m"}}`
		path := policies + "/twice?fieldManager=me"
		first := s.send(t, "PATCH", path, serverApply, ownKind("RolloutPolicy", "twice", spec)).want(t, 201)
		again := s.send(t, "PATCH", path, serverApply, ownKind("RolloutPolicy", "twice", spec)).want(t, 200)
		again.expect(t, map[string]string{"spec.failure.startDeadline": `"5m"`})
		if first.at("metadata.resourceVersion") != again.at("metadata.resourceVersion") {
			t.Errorf("it was stored again: %s", again.raw)
		}
	})
	t.Run("a dry run changes nothing", func(t *testing.T) {
		s.send(t, "POST", policies+"?dryRun=All", asJSON, ownKind("RolloutPolicy", "dry", `{}`)).want(t, 201)
		s.send(t, "GET", policies+"/dry", asJSON, "").want(t, 404)
	})
	t.Run("a JSON patch", func(t *testing.T) {
		s.send(t, "POST", policies, asJSON, ownKind("RolloutPolicy", "patched", `{}`)).want(t, 201)
		s.send(t, "PATCH", policies+"/patched", "application/json-patch+json", `[{"op":"add","path":"/spec/pace","value":{"nodesPerMinute":7}}]`).
			want(t, 200).expect(t, map[string]string{"spec.pace": `{"nodesPerMinute":7}`})
	})
	t.Run("fields to select by", func(t *testing.T) {
		r := s.send(t, "GET", ownKinds+"/rolloutpolicies?fieldSelector=metadata.name%3Dfilled,metadata.namespace%3Ddefault", asJSON, "").want(t, 200)
		if items, _ := r.at("items").([]any); len(items) != 1 {
			t.Errorf("found %d, want 1", len(items))
		}
		s.send(t, "GET", policies+"?fieldSelector=spec.pace%3D1", asJSON, "").want(t, 400)
	})
	t.Run("descriptions", func(t *testing.T) { describes(t, s) })
	t.Run("tables", func(t *testing.T) { printsRollouts(t, s) })
}

// describes checks what kubectl explain reads.
func describes(t *testing.T, s *server) {
	v3 := s.send(t, "GET", "/openapi/v3/apis/everynode.io/v1alpha1", asJSON, "").want(t, 200)
	v2 := s.send(t, "GET", "/openapi/v2", asJSON, "").want(t, 200)
	for path, schemas := range map[string]any{"/openapi/v3": v3.at("components.schemas"), "/openapi/v2": v2.at("definitions")} {
		known, _ := schemas.(map[string]any)
		wave, _ := known["io.everynode.v1alpha1.Wave"].(map[string]any)
		fields, _ := wave["properties"].(map[string]any)
		soak, _ := fields["soak"].(map[string]any)
		if text, _ := soak["description"].(string); !strings.HasPrefix(text, "Soak is how long") {
			t.Errorf("%s says of a wave's soak: %v", path, soak)
		}
		for name, schema := range known {
			if !strings.HasPrefix(name, "io.everynode.") {
				continue
			}
			of, _ := schema.(map[string]any)["properties"].(map[string]any)
			for field, f := range of {
				if text, _ := f.(map[string]any)["description"].(string); text == "" {
					t.Errorf("%s: %s of %s has no description", path, field, name)
				}
			}
		}
	}
}

func printsRollouts(t *testing.T, s *server) {
	s.send(t, "POST", policies, asJSON, ownKind("RolloutPolicy", "shown", `{"waves":[{"name":"canary","count":1},{"name":"zones","each":"zone"}],"failure":{"max":"3%","then":"Rollback"}}`)).want(t, 201)
	s.send(t, "PATCH", policies+"/shown/status", mergePatch, `{"status":{"matchedCount":2}}`).want(t, 200)
	s.send(t, "POST", rollouts, asJSON, ownKind("DaemonSetRollout", "agent", `{}`)).want(t, 201)
	s.send(t, "PATCH", rollouts+"/agent/status", mergePatch, `{"status":{"phase":"Soaking","step":"zones/a","stableRevision":"5f6","targetRevision":"7d9",
		"steps":[{"name":"canary","nodes":1,"done":1},{"name":"zones/a","nodes":9,"done":4,"failed":2}]}}`).want(t, 200)
	for path, want := range map[string]string{
		policies + "/shown": "Name Matches Waves Failure Age Selector Pace\nshown 2 canary,zones Rollback over 3% AGE <all> <none>",
		rollouts + "/agent": "DaemonSet Phase Step Done Failed Stable Target Age Message\nagent Soaking zones/a 5/10 2 5f6 7d9 AGE ",
	} {
		var table metav1.Table
		raw := s.accepting(t, path, "application/json;as=Table;v=v1;g=meta.k8s.io")
		if err := json.Unmarshal(raw, &table); err != nil {
			t.Fatal(err)
		}
		var names, cells []string
		for i, c := range table.ColumnDefinitions {
			names = append(names, c.Name)
			cell := fmt.Sprint(table.Rows[0].Cells[i])
			if c.Name == "Age" {
				cell = "AGE"
			}
			cells = append(cells, cell)
		}
		if got := strings.Join(names, " ") + "\n" + strings.Join(cells, " "); got != want {
			t.Errorf("%s is printed as\n%s\nwant\n%s", path, got, want)
		}
	}
}

// TestOwnKindsAreLikeAllOthers: clients that ask for protobuf, watches, owners and
// namespaces work with kinds that have no binary form.
func TestOwnKindsAreLikeAllOthers(t *testing.T) {
	s := startWith(t, func(o *config.Options) { o.NoDaemonSetController = true }) // It writes both kinds, too.
	ctx := t.Context()
	own, err := client.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := own.RolloutPolicies("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	owner, err := own.RolloutPolicies("default").Create(ctx, &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if seen := <-watch.ResultChan(); seen.Object.(*v1alpha1.RolloutPolicy).UID != owner.UID {
		t.Errorf("the watch tells of %v", seen)
	}
	resource := v1alpha1.GroupVersion.WithResource("rolloutpolicies")
	if got, err := objects.Resource(resource).Namespace("default").Get(ctx, "owner", metav1.GetOptions{}); err != nil || got.UID != owner.UID {
		t.Errorf("the metadata alone, by protobuf: %v, %v", got, err)
	}
	owned := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RolloutPolicy", Name: "owner", UID: owner.UID},
	}}}
	if owned, err = own.DaemonSetRollouts("default").Create(ctx, owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	owned.Status.Phase = v1alpha1.PhaseHalted
	if owned, err = own.DaemonSetRollouts("default").UpdateStatus(ctx, owned, metav1.UpdateOptions{}); err != nil || owned.Status.Phase != v1alpha1.PhaseHalted {
		t.Fatalf("the status after an update is %v, %v", owned, err)
	}
	if err := own.RolloutPolicies("default").Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the owned rollout goes with its owner", gone(func(ctx context.Context) error {
		_, err := own.DaemonSetRollouts("default").Get(ctx, "owned", metav1.GetOptions{})
		return err
	}))
	s.send(t, "POST", "/api/v1/namespaces", asJSON, `{"metadata":{"name":"short"}}`).want(t, 201)
	guarded := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{
		{Name: "canary", Each: "zone", Approval: v1alpha1.ApprovalManual},
	}}}
	if _, err := own.RolloutPolicies("short").Create(ctx, guarded, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.send(t, "DELETE", "/api/v1/namespaces/short", asJSON, "").want(t, 200)
	s.Eventually("the namespace goes with its policy", gone(func(ctx context.Context) error {
		_, err := s.Client.CoreV1().Namespaces().Get(ctx, "short", metav1.GetOptions{})
		return err
	}))
}

// gone wants that something is not found.
func gone(get func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := get(ctx); err == nil {
			return fmt.Errorf("it is there")
		} else if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}
}

// TestAnApprovalNamesItsChange: who approves, and does not know that changes have numbers, approves what is under way at
// that moment. Nothing that is written later makes it one of another change, and who writes it in vain is warned.
func TestAnApprovalNamesItsChange(t *testing.T) {
	s := start(t)
	s.send(t, "POST", rollouts, asJSON, ownKind("DaemonSetRollout", "agent", `{}`)).want(t, 201)
	var warned warnings
	config := restclient.CopyConfig(s.Config)
	config.WarningHandler = &warned
	own, err := client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + strings.Repeat("0a", 32)
	at := func(change int64, revision string) {
		s.send(t, "PATCH", rollouts+"/agent/status", mergePatch, fmt.Sprintf(
			`{"status":{"stableRevision":"v1","targetRevision":%q,"targetDigest":%q,"change":%d}}`, revision, digest, change)).want(t, 200)
	}
	approve := func(kind types.PatchType, text string) (int64, bool) {
		t.Helper()
		warned = nil
		options := metav1.PatchOptions{}
		if kind == types.ApplyPatchType {
			options = metav1.PatchOptions{FieldManager: "git", Force: ptr.To(true)}
		}
		r, err := own.DaemonSetRollouts("default").Patch(t.Context(), "agent", kind, []byte(text), options)
		if err != nil {
			t.Fatal(err)
		}
		return r.Spec.Approved.Change, len(warned) > 0
	}
	merge := func(revision string) string {
		return fmt.Sprintf(`{"spec":{"approved":{"revision":%q,"digest":%q,"step":"canary"}}}`, revision, digest)
	}
	apply := strings.Replace(merge("v2"), "{", `{"apiVersion":"everynode.io/v1alpha1","kind":"DaemonSetRollout","metadata":{"name":"agent"},`, 1)
	numbered := strings.Replace(merge("v2"), `"step"`, `"change":5,"step"`, 1)
	for _, c := range []struct {
		name     string
		change   int64
		revision string
		kind     types.PatchType
		text     string
		want     int64
		warns    bool
	}{
		{"a patch", 2, "v2", types.MergePatchType, merge("v2"), 2, false},
		{"the same, when it was undone", 3, "v1", types.MergePatchType, merge("v2"), 2, false},
		{"the same, when it was made once more", 4, "v2", types.MergePatchType, merge("v2"), 2, true},
		{"the same, by who applies a file", 4, "v2", types.ApplyPatchType, apply, 2, true},
		{"a pause", 5, "v2", types.MergePatchType, `{"spec":{"paused":true}}`, 2, true},
		{"the number", 5, "v2", types.MergePatchType, numbered, 5, false},
		{"the file again", 6, "v2", types.ApplyPatchType, apply, 5, true},
		{"another revision", 7, "v3", types.MergePatchType, merge("v3"), 7, false},
	} {
		at(c.change, c.revision)
		if got, warns := approve(c.kind, c.text); got != c.want || warns != c.warns {
			t.Errorf("%s in change %d: it is for change %d, want %d; warned: %q", c.name, c.change, got, c.want, warned)
		}
	}
}

// warnings keeps what an API server warns of.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// TestWhoMayApprove: an editor of a namespace changes templates and policies, and
// neither approves nor takes an approval away. On an API server without our rule the
// example does the same.
func TestWhoMayApprove(t *testing.T) {
	t.Run("by the built-in rule", func(t *testing.T) { whoMayApprove(t, start(t)) })
	t.Run("by the example", func(t *testing.T) {
		s := startWith(t, func(o *config.Options) { o.API.DisablePlugins = []string{"RolloutApproval"} })
		text, err := os.ReadFile("../../examples/rollout-approval.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for i, document := range strings.Split(string(text), "\n---\n") {
			raw, err := yaml.YAMLToJSON([]byte(document))
			if err != nil {
				t.Fatal(err)
			}
			kind := []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}[i%2]
			s.send(t, "POST", "/apis/admissionregistration.k8s.io/v1/"+kind, asJSON, string(raw)).want(t, 201)
		}
		whoMayApprove(t, s)
	})
}

// guardedDaemonSet makes a DaemonSet that policy "p" selects.
func guardedDaemonSet(t *testing.T, s *server) {
	t.Helper()
	app := map[string]string{"app": "logs"}
	_, err := s.Client.AppsV1().DaemonSets("default").Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "logs", Labels: map[string]string{"tier": "logs"}},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: app},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func whoMayApprove(t *testing.T, s *server) {
	ctx := t.Context()
	for _, role := range []string{"view", "edit", "admin"} {
		_, err := s.Client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: role}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	users := map[*client.Client]string{}
	as := func(user string) *client.Client {
		config := restclient.CopyConfig(s.Config)
		config.Impersonate = restclient.ImpersonationConfig{UserName: user}
		c, err := client.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		users[c] = user
		return c
	}
	viewer, editor, admin := as("view"), as("edit"), as("admin")
	s.Eventually("the roles have their rules", func(ctx context.Context) error {
		_, err := admin.RolloutPolicies("default").List(ctx, metav1.ListOptions{})
		return err
	})
	tier := func(of string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"tier": of}}
	}
	lax := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "lax"}, Spec: v1alpha1.RolloutPolicySpec{Selector: tier("free")}}
	if _, err := editor.RolloutPolicies("default").Create(ctx, lax, metav1.CreateOptions{}); err != nil {
		t.Fatalf("an editor makes a policy: %v", err)
	}
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.RolloutPolicySpec{
		Selector: tier("logs"), Waves: []v1alpha1.Wave{{Name: "zones", Each: "zone", Approval: v1alpha1.ApprovalManual}},
	}}
	if _, err := editor.RolloutPolicies("default").Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		t.Fatalf("an editor makes a policy: %v", err)
	}
	s.send(t, "POST", rollouts, asJSON, ownKind("DaemonSetRollout", "agent", `{}`)).want(t, 201)
	approve := `{"spec":{"approved":{"revision":"abc","digest":"sha256:` + strings.Repeat("0a", 32) + `","step":"All"}}}`
	patch := func(c *client.Client) error {
		_, err := c.DaemonSetRollouts("default").Patch(ctx, "agent", types.MergePatchType, []byte(approve), metav1.PatchOptions{})
		return err
	}
	loosen := func(c *client.Client) error {
		_, err := c.RolloutPolicies("default").Patch(ctx, "p", types.MergePatchType, []byte(`{"spec":{"waves":[]}}`), metav1.PatchOptions{})
		return err
	}
	remove := func(c *client.Client) error {
		return c.RolloutPolicies("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	selectAll := func(c *client.Client, o metav1.PatchOptions) error {
		_, err := c.RolloutPolicies("default").Patch(ctx, "lax", types.MergePatchType, []byte(`{"spec":{"selector":null}}`), o)
		return err
	}
	takeOver := func(c *client.Client) error { return selectAll(c, metav1.PatchOptions{}) }
	tryTakeOver := func(c *client.Client) error { return selectAll(c, dry) }
	disown := func(c *client.Client) error {
		none := `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"none"}]}}`
		_, err := c.RolloutPolicies("default").Patch(ctx, "p", types.MergePatchType, []byte(none), metav1.PatchOptions{})
		return err
	}
	guardedDaemonSet(t, s)
	change := func(c *client.Client, change string, o metav1.PatchOptions) error {
		config := restclient.CopyConfig(s.Config)
		config.Impersonate = restclient.ImpersonationConfig{UserName: users[c]}
		_, err := kubernetes.NewForConfigOrDie(config).AppsV1().DaemonSets("default").
			Patch(ctx, "logs", types.MergePatchType, []byte(change), o)
		return err
	}
	set := func(to string) func(*client.Client) error {
		return func(c *client.Client) error { return change(c, to, metav1.PatchOptions{}) }
	}
	const (
		unlabelled = `{"metadata":{"labels":null}}`
		freed      = `{"metadata":{"labels":{"tier":"free"}},"spec":{"minReadySeconds":3}}`
		onDelete   = `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`
		another    = `{"metadata":{"labels":{"other":"label"}},"spec":{"minReadySeconds":2}}`
	)
	tryUnlabel := func(c *client.Client) error { return change(c, unlabelled, dry) }
	status := func(c *client.Client) error {
		_, err := c.DaemonSetRollouts("default").Patch(ctx, "agent", types.MergePatchType, []byte(`{"status":{"phase":"Complete"}}`), metav1.PatchOptions{}, "status")
		return err
	}
	// A policy of admission is followed some time after it was made.
	s.Eventually("an editor does not take the approval away", func(ctx context.Context) error {
		_, err := editor.RolloutPolicies("default").Patch(ctx, "p", types.MergePatchType, []byte(`{"spec":{"waves":[]}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	s.Eventually("an editor does not take the DaemonSet out of its policy", func(context.Context) error {
		for what, err := range map[string]error{"a label": tryUnlabel(editor), "a selector": tryTakeOver(editor)} {
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("the answer to %s is %w", what, err)
			}
		}
		return nil
	})
	for _, c := range []struct {
		name    string
		do      func(*client.Client) error
		who     *client.Client
		allowed bool
	}{
		{"a viewer approves", patch, viewer, false},
		{"an editor approves", patch, editor, false},
		{"an editor takes the approval out of the policy", loosen, editor, false},
		{"an editor has an older policy take the DaemonSet over", takeOver, editor, false},
		{"an editor deletes the policy", remove, editor, false},
		{"an editor has the garbage collector delete the policy", disown, editor, false},
		{"an editor takes the DaemonSet's labels off", set(unlabelled), editor, false},
		{"an editor gives the DaemonSet another policy's label, and changes it", set(freed), editor, false},
		{"an editor has whoever deletes pods change the DaemonSet", set(onDelete), editor, false},
		{"an editor changes the DaemonSet", set(another), editor, true},
		{"an administrator of the namespace takes the DaemonSet out", set(freed), admin, true},
		{"an administrator of the namespace writes the status", status, admin, false},
		{"an administrator of the namespace approves", patch, admin, true},
		{"an administrator of the namespace takes the approval out", loosen, admin, true},
		{"an editor deletes a policy without approvals", remove, editor, true},
	} {
		err := c.do(c.who)
		if c.allowed && err != nil || !c.allowed && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want allowed %v", c.name, err, c.allowed)
		}
	}
}
