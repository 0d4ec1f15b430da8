package admin

import (
	"bytes"
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/everynode/everynode/internal/storage/members"
)

// clusterOf makes a data directory whose kubeconfig leads to a handler.
func clusterOf(t *testing.T, handler http.HandlerFunc) (dataDir string) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: "t"}
	config.CurrentContext = "c"
	dataDir = t.TempDir()
	if err := clientcmd.WriteToFile(*config, filepath.Join(dataDir, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	return dataDir
}

// A server that has just lost another says "not now" until it knows who answers.
func TestRemovingIsInsistedOn(t *testing.T) {
	asked := 0
	dir := clusterOf(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		if asked < 3 {
			http.Error(w, "the servers are not ready for a change", http.StatusServiceUnavailable)
			return
		}
		if r.Method != http.MethodDelete || !strings.HasSuffix(r.URL.Path, "/m2") {
			http.Error(w, "unexpected", http.StatusConflict)
			return
		}
		_, _ = w.Write([]byte("{}"))
	})
	before := insistently
	insistently = persistence{time.Minute, time.Millisecond}
	t.Cleanup(func() { insistently = before })
	cmd := newMembersRemoveCommand()
	var out, complaint bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&complaint)
	cmd.SetArgs([]string{"m2", "--data-dir", dir})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked != 3 || !strings.Contains(out.String(), "m2 is not one of") ||
		strings.Count(complaint.String(), "Not yet: the servers are not ready") != 1 {
		t.Errorf("asked %d times, it said %q and %q", asked, out.String(), complaint.String())
	}
}

func TestInsistingEnds(t *testing.T) {
	busy := clusterOf(t, func(w http.ResponseWriter,
		_ *http.Request) {
		http.Error(w, "not now", http.StatusServiceUnavailable)
	})
	asked := 0
	refusing := clusterOf(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		http.Error(w, "there is no server of the name x", http.StatusConflict)
	})
	question := func(dir string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := askServer(ctx, dir, http.MethodDelete, "/x")
			return err
		}
	}
	p := persistence{20 * time.Millisecond, time.Millisecond}
	err := p.ask(t.Context(), &bytes.Buffer{}, question(busy))
	if err == nil || !strings.Contains(err.Error(), "not now; that did not change in 20ms") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("one that never can ends with %v", err)
	}
	if err := p.ask(t.Context(), &bytes.Buffer{}, question(refusing)); err == nil || asked != 1 {
		t.Errorf("a refusal is asked for %d times: %v", asked, err)
	}
}

// Who looks while a majority is lost is told so, and what to do.
func TestLostMajorityIsTold(t *testing.T) {
	list := members.List{Servers: []members.Server{{Name: "m1"}, {Name: "m2", Problem: "does not answer"},
		{Name: "m3", Problem: "does not answer"}, {ID: "4", Learner: true, Problem: "does not answer"}}}
	var out bytes.Buffer
	if err := printMembers(&out, list); err != nil ||
		!strings.Contains(out.String(), "No majority: 1 of 3 servers answer, 2 are needed. Nothing can be changed until more of them run") ||
		!strings.Contains(out.String(), "everynode members reset") {
		t.Errorf("%v: it says\n%s", err, &out)
	}
	list.Servers[0].Leads, list.Servers[1].Problem = true, ""
	list.Servers[1].Outdated = true
	out.Reset()
	if err := printMembers(&out, list); err != nil || strings.Contains(out.String(), "No majority") ||
		!strings.Contains(out.String(), "m2: still uses a database authority") {
		t.Errorf("%v: it says\n%s", err, &out)
	}
}

// Databases that differ are told, and what to do where nobody knows which is right.
func TestDifferingDatabasesAreTold(t *testing.T) {
	list := members.List{Servers: []members.Server{{Name: "m1", Leads: true}, {Name: "m2", Differs: members.Corrupt}}}
	var out bytes.Buffer
	err := printMembers(&out, list)
	if err != nil || !strings.Contains(out.String(), "Corrupt") || strings.Contains(out.String(), "no majority") {
		t.Errorf("%v: it says\n%s", err, &out)
	}
	list.Servers[0].Differs, list.Servers[1].Differs = members.Disputed, members.Disputed
	out.Reset()
	err = printMembers(&out, list)
	if err != nil || strings.Contains(out.String(), "Ready") ||
		!strings.Contains(out.String(), "no majority of the servers agrees") {
		t.Errorf("%v: it says\n%s", err, &out)
	}
}

// What is in front of several servers may lead to another one than that of the folder.
func TestLeavingNamesItsServer(t *testing.T) {
	name := ""
	dir := clusterOf(t, func(w http.ResponseWriter, r *http.Request) {
		name = r.URL.Query().Get("name")
		_, _ = w.Write([]byte("{}"))
	})
	if err := os.WriteFile(filepath.Join(dir, "members.json"), []byte(`{"Name":"m2","URL":"https://10.0.0.2:2380"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	cmd := NewServerLeave()
	cmd.SetOut(&bytes.Buffer{})
	cmd.SetArgs([]string{"--data-dir", dir})
	if err := cmd.ExecuteContext(t.Context()); err != nil || name != "m2" {
		t.Errorf("it asked %q to leave: %v", name, err)
	}
}
