package foreign

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

var reportRights = flag.Bool("rights", false,
	"say which rights nobody used in the tests that -run chooses; where all tests run these are a failure")

// Why a right that no test uses is needed.
const (
	changedByOthers = "asked where somebody, or an upgrade, has changed what is registered; internal/beside shows it"
	enforced        = "asked where OwnerReferencesPermissionEnforcement is on, which it is not here"
	mayHaveGone     = "a leader that begins asks for one that its cache lacks, which may have gone"
	amountsAlone    = "asked where variants change amounts alone; internal/controller/daemonset shows it"
)

// unusedRights are granted though no test shows a request for them, each with its reason.
var unusedRights = map[string]string{
	"patch /pods/resize": amountsAlone,
	"update admissionregistration.k8s.io/validatingadmissionpolicies":       changedByOthers,
	"update admissionregistration.k8s.io/validatingadmissionpolicybindings": changedByOthers,
	"get everynode.io/rolloutpolicies":                                      mayHaveGone,
	"update apps/daemonsets/finalizers":                                     enforced,
	"update everynode.io/daemonsetrollouts/finalizers":                      enforced,
}

// usedRights are what accounts have asked of API servers, as "verb group/resource".
var usedRights = struct {
	sync.Mutex
	by map[string]map[string]bool
}{by: map[string]map[string]bool{}}

// TestMain looks, once all tests have run, for rights that are granted and that nobody used.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	all := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" && *programs != ""
	if code == 0 && all || *reportRights {
		unused, err := tooMuch("../../examples/beside-rbac.yaml", besideAccount, chartAccount)
		if err != nil {
			fmt.Println(err)
			code = 1
		}
		for _, right := range unused {
			fmt.Printf("examples/beside-rbac.yaml lets the controller %s, and no test has it do so\n", right)
		}
		if all && len(unused) > 0 {
			code = 1
		}
	}
	os.Exit(code)
}

// noteRights keeps what accounts have asked of the cluster's API server, by its audit log.
func (c *cluster) noteRights() {
	raw, err := os.ReadFile(c.audit)
	if err != nil {
		return // the API server was never started
	}
	usedRights.Lock()
	defer usedRights.Unlock()
	for line := range bytes.Lines(raw) {
		var e struct {
			User      struct{ Username string }
			Verb      string
			ObjectRef *struct{ APIGroup, Resource, Subresource string }
		}
		err := json.Unmarshal(line, &e)
		if err != nil || e.ObjectRef == nil {
			continue // the last line may be half a one
		}
		if usedRights.by[e.User.Username] == nil {
			usedRights.by[e.User.Username] = map[string]bool{}
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		usedRights.by[e.User.Username][rightTo(e.Verb, e.ObjectRef.APIGroup, resource)] = true
	}
}

func rightTo(verb, group, resource string) string { return verb + " " + group + "/" + resource }

// tooMuch are the rights that roles of a file grant and that none of the accounts, which have the same, has used.
func tooMuch(file string, accounts ...string) (out []string, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, account := range accounts {
		maps.Copy(used, usedRights.by[account])
	}
	rules := 0
	for _, text := range strings.Split(string(raw), "\n---\n") {
		var role rbacv1.ClusterRole
		err = yaml.Unmarshal([]byte(text), &role)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if role.Name != "everynode:beside" { // others are given to it by whoever wants content
			continue
		}
		for i := range role.Rules {
			rules++
			out = append(out, unusedOf(&role.Rules[i], used)...)
		}
	}
	if rules == 0 {
		return nil, fmt.Errorf("%s has no rules", file)
	}
	return out, nil
}

// unusedOf are the rights of a rule that nobody used. An event is of either group, as the API server has it.
func unusedOf(rule *rbacv1.PolicyRule, used map[string]bool) (out []string) {
	for _, resource := range rule.Resources {
		for _, verb := range rule.Verbs {
			rights := make([]string, 0, len(rule.APIGroups))
			for _, group := range rule.APIGroups {
				rights = append(rights, rightTo(verb, group, resource))
			}
			known := func(right string) bool { return used[right] || unusedRights[right] != "" }
			if !slices.ContainsFunc(rights, known) {
				out = append(out, strings.Join(rights, " or "))
			}
		}
	}
	return out
}

// TestUnusedRights: what is granted and was not asked for is named, whatever group it is of.
func TestUnusedRights(t *testing.T) {
	rule := &rbacv1.PolicyRule{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events", "things"},
		Verbs: []string{"create", "patch"}}
	got := unusedOf(rule, map[string]bool{"create /events": true, "patch events.k8s.io/events": true,
		"patch apps/things": true})
	want := []string{"create /things or create events.k8s.io/things", "patch /things or patch events.k8s.io/things"}
	if !slices.Equal(got, want) {
		t.Errorf("nobody used %q, want %q", got, want)
	}
	if got := unusedOf(&rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"daemonsets/finalizers"},
		Verbs: []string{"update"}}, nil); got != nil {
		t.Errorf("what has its reason is named: %q", got)
	}
}
