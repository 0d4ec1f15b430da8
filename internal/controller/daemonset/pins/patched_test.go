package pins

import (
	"strings"
	"testing"
	"time"
)

// A variant gives some nodes another image. Their pods tell nothing of the template's: another node is first.
func TestANodeWithAnotherImageTellsNothing(t *testing.T) {
	for _, image := range []string{"demo:v9", "other:v9", "demo@" + sha(9)} {
		w := newWorld(t, pinned)
		w.registry[image] = sha(9)
		w.patched = map[string]string{"n0": image, "n1": image}
		w.start()
		w.pass(3 * time.Minute)
		patched := image + " docker.io/library/" + image
		if tagged, is := strings.CutSuffix(image, ":v9"); is {
			patched = image + " docker.io/library/" + tagged + "@" + sha(9)
		}
		w.wantRuns(map[string]int{patched: 2, byTag(1): 1, byDigest(1): 3})
		if s := w.stored.Images; len(s.Templates) != 1 || s.Message != "" {
			t.Errorf("the rollout says %+v", s)
		}
	}
}
