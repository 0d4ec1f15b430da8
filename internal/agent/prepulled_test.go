package agent

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/change/prepull"
	"github.com/everynode/everynode/internal/node/imagepull"
	"github.com/everynode/everynode/internal/testenv"
)

// prepulled has the node pull images as "everynode image pull" does, through the API server.
func prepulled(t *testing.T, env *testenv.Env) {
	t.Helper()
	client, err := prepull.New(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	pull := func(node string, o prepull.Order) (out prepull.Result) {
		client.Pull(t.Context(), []string{node}, o, func(string) {}, func(r prepull.Result) { out = r })
		return out
	}
	kept := func() string { return strings.Join(client.Pins(t.Context(), []string{"n1"}, 1)[0].Images, " ") }
	if r := pull("n1", prepull.Order{Image: podstest.BoxImage, Pin: true}); r.Err != nil || r.State != imagepull.Present ||
		r.Bytes == 0 {
		t.Errorf("an image that is there: %+v", r)
	}
	const nowhere = "127.0.0.1:1/none:1"
	if r := pull("n1", prepull.Order{Image: nowhere, Pin: true}); r.Err == nil ||
		!strings.Contains(r.Err.Error(), "dial tcp 127.0.0.1:1") {
		t.Errorf("an image that cannot be had: %+v", r)
	}
	if got := kept(); got != podstest.BoxImage {
		t.Errorf("kept are %q", got)
	}
	if r := pull("n1", prepull.Order{Image: "Not//A name"}); r.Err == nil ||
		!strings.Contains(r.Err.Error(), "couldn't parse image name") {
		t.Errorf("what is no name: %+v", r)
	}
	if r := pull("n2", prepull.Order{Image: podstest.BoxImage}); r.Err == nil ||
		!strings.Contains(r.Err.Error(), `nodes "n2" not found`) {
		t.Errorf("a node that is not there: %+v", r)
	}
	client.Unpin(t.Context(), []string{"n1"}, podstest.BoxImage, 1, func(r prepull.Result) {
		if r.Err != nil || r.State != imagepull.Present {
			t.Errorf("let go: %+v", r)
		}
	})
	if got := kept(); got != "" {
		t.Errorf("kept are %q", got)
	}
}
