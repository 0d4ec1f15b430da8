package server

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/server/config"
)

// recording lets a server record everything at a level.
func recording(t testing.TB, level string) (change func(*config.Options), log string) {
	t.Helper()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	content := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: " + level + "}]\n"
	if err := os.WriteFile(policy, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(o *config.Options) { o.API.Audit.PolicyFile, o.API.Audit.LogOptions.Path = policy, log }, log
}

// recorded returns the last record of that kind of write.
func recorded(t *testing.T, log, verb, user, uri string) *auditv1.Event {
	t.Helper()
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var found *auditv1.Event
	for line := range bytes.Lines(content) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // another record is being written
		}
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.Verb == verb && e.User.Username == user && e.RequestURI == uri {
			found = &e
		}
	}
	if found == nil {
		t.Fatalf("there is no record of %s %s by %s", verb, uri, user)
	}
	return found
}

const daemons = "system:serviceaccount:kube-system:daemon-set-controller"

// What comes through the door is recorded as what comes as a request, under the
// name of the loop that did it.
func TestInsideDoorIsAudited(t *testing.T) {
	t.Parallel()
	change, log := recording(t, "RequestResponse")
	_, http, door := ways(t, change)
	ctx := t.Context()
	door.as(bootstrap.ControllerAccount("daemon-set-controller"))
	for _, w := range []way{http, door} {
		p, err := w.ds.CreatePod(ctx, testPod(w.namespace, "p"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.ds.CreatePod(ctx, testPod(w.namespace, "p")); !apierrors.IsAlreadyExists(err) {
			t.Fatalf("got %v, want AlreadyExists", err)
		}
		if err := w.ds.DeletePod(ctx, w.namespace, "p", p.UID); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		verb, path string
		code       int32
	}{{"create", "", 409}, {"delete", "/p", 200}} {
		byHTTP := recorded(t, log, c.verb, "system:apiserver", "/api/v1/namespaces/by-http/pods"+c.path)
		byDoor := recorded(t, log, c.verb, daemons, "/api/v1/namespaces/by-door/pods"+c.path)
		if byDoor.ResponseStatus.Code != c.code || byHTTP.ResponseStatus.Code != c.code {
			t.Errorf("%s is recorded with %d, as a request with %d; want %d", c.verb, byDoor.ResponseStatus.Code,
				byHTTP.ResponseStatus.Code, c.code)
		}
		a, b := byHTTP.ObjectRef, byDoor.ObjectRef
		if a.Resource != b.Resource || a.Name != b.Name || a.APIVersion != b.APIVersion ||
			(a.UID == "") != (b.UID == "") {
			t.Errorf("%s is about %+v, as a request about %+v", c.verb, *b, *a)
		}
		if byDoor.RequestObject == nil || byDoor.ResponseObject == nil || byDoor.AuditID == "" ||
			byDoor.Stage != auditv1.StageResponseComplete {
			t.Errorf("%s by the door is recorded as %+v", c.verb, *byDoor)
		}
		if byDoor.Annotations["authorization.k8s.io/decision"] != "allow" ||
			!strings.Contains(byDoor.Annotations["authorization.k8s.io/reason"], "daemon-set-controller") {
			t.Errorf("%s was allowed for %v", c.verb, byDoor.Annotations)
		}
	}
}

// The door asks for the rights of who writes, and a refusal changes nothing.
func TestInsideDoorAsksForRights(t *testing.T) {
	t.Parallel()
	change, log := recording(t, "Metadata")
	client, _, door := ways(t, change)
	door.as(bootstrap.ControllerAccount("nobody"))
	_, err := door.ds.CreatePod(t.Context(), testPod(door.namespace, "p"))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(),
		`User "system:serviceaccount:kube-system:nobody" cannot create resource "pods"`) {
		t.Errorf("got %v, want a refusal that names the account", err)
	}
	if _, err := client.CoreV1().Pods(door.namespace).Get(t.Context(), "p",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is there: %v", err)
	}
	e := recorded(t, log, "create", "system:serviceaccount:kube-system:nobody", "/api/v1/namespaces/by-door/pods")
	if e.ResponseStatus.Code != 403 || e.Annotations["authorization.k8s.io/decision"] != "forbid" {
		t.Errorf("the refusal is recorded as %+v, %v", e.ResponseStatus, e.Annotations)
	}
}

// as lets another account use the door.
func (w *way) as(account user.Info) {
	w.through(w.door.As(account))
}

// BenchmarkInsideDoor is what a write costs by who writes and what is recorded.
func BenchmarkInsideDoor(b *testing.B) {
	write := func(b *testing.B, door way, name string) {
		lease, err := door.sim.CreateLease(b.Context(),
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: name}})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			lease = lease.DeepCopy()
			lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
			if lease, err = door.sim.UpdateLease(b.Context(), lease); err != nil {
				b.Fatal(err)
			}
		}
	}
	_, _, door := ways(b)
	b.Run("as the server", func(b *testing.B) { write(b, door, "a"+rand.String(8)) })
	door.as(bootstrap.ControllerAccount("node-simulator"))
	b.Run("as an account", func(b *testing.B) { write(b, door, "b"+rand.String(8)) })
	// All but the write: what it takes to find out that there is no right.
	door.as(bootstrap.ControllerAccount("nobody"))
	b.Run("refused", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := door.ds.DeletePod(b.Context(), "default", "p", "u"); !apierrors.IsForbidden(err) {
				b.Fatal(err)
			}
		}
	})
	change, _ := recording(b, "Metadata")
	_, _, door = ways(b, change)
	door.as(bootstrap.ControllerAccount("node-simulator"))
	b.Run("recorded", func(b *testing.B) { write(b, door, "c"+rand.String(8)) })
}
