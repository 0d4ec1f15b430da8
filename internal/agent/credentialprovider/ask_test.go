package credentialprovider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	protocol "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	testingclock "k8s.io/utils/clock/testing"
)

// box has a folder with programs and their configuration.
type box struct {
	*testing.T
	dir   string
	clock *testingclock.FakePassiveClock
}

func newBox(t *testing.T) *box {
	return &box{t, t.TempDir(), testingclock.NewFakePassiveClock(time.Unix(1000, 0))}
}

func (b *box) path(name string) string { return filepath.Join(b.dir, name) }

func (b *box) write(name, text string, mode os.FileMode) {
	b.Helper()
	if err := os.WriteFile(b.path(name), []byte(text), mode); err != nil {
		b.Fatal(err)
	}
}

// program writes one that notes each run, and then does what the script says.
func (b *box) program(name, script string) {
	b.Helper()
	b.write(name, "#!/bin/sh\ncat > "+b.path(name+".asked")+"\necho >> "+b.path(name+".runs")+"\n"+script+"\n", 0o755)
}

// runs counts how often a program has run.
func (b *box) runs(name string) int {
	text, _ := os.ReadFile(b.path(name + ".runs"))
	return strings.Count(string(text), "\n")
}

const fileHead = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

func provider(name, images string) string {
	return "- name: " + name + "\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  defaultCacheDuration: 10m\n  matchImages: [" + images + "]\n"
}

func (b *box) load(providers string) *Programs {
	b.Helper()
	b.write("config.yaml", fileHead+providers, 0o600)
	p, err := Load(b.path("config.yaml"), b.dir, b.clock)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// answer is a script that answers with a user for a registry.
func answer(scope, more, registry, user string) string {
	return fmt.Sprintf(`echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":%q,%s"auth":{%q:{"username":%q,"password":"secret"}}}'`, scope, more, registry, user)
}

// users are those that are said for an image.
func (b *box) users(p *Programs, image string) (string, error) {
	b.Helper()
	all, err := p.Ask(b.Context(), image)
	var users []string
	for _, credentials := range all {
		for registry, c := range credentials {
			users = append(users, registry+"="+c.Username)
		}
	}
	return strings.Join(users, " "), err
}

func TestAsk(t *testing.T) {
	b := newBox(t)
	b.program("one", `echo "$1 $VARIABLE $PATH" > `+b.path("told")+"\n"+answer("Image", "", "registry.example.com", "u"))
	p := b.load(provider("one", `"registry.example.com/team"`) + "  args: [argument]\n  env: [{name: VARIABLE, value: value}]\n")
	if users, err := b.users(p, "registry.example.com/team/app"); users != "registry.example.com=u" || err != nil {
		t.Fatalf("it says %q, %v", users, err)
	}
	asked, _ := os.ReadFile(b.path("one.asked"))
	if want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"registry.example.com/team/app"}`; string(asked) != want {
		t.Errorf("it was asked %s, want %s", asked, want)
	}
	told, _ := os.ReadFile(b.path("told"))
	if want := "argument value " + os.Getenv("PATH") + "\n"; string(told) != want {
		t.Errorf("it was told %q, want %q", told, want)
	}
	if users, err := b.users(p, "registry.example.com/other/app"); users != "" || err != nil || b.runs("one") != 1 {
		t.Errorf("for another image it says %q, %v after %d runs", users, err, b.runs("one"))
	}
}

func TestPatterns(t *testing.T) {
	for pattern, c := range map[string]struct{ fits, other []string }{
		"registry.io":           {[]string{"registry.io/a", "registry.io/a/b"}, []string{"registry.io:5000/a", "x.registry.io/a", "registry.io.evil.com/a"}},
		"*.registry.io":         {[]string{"x.registry.io/a"}, []string{"registry.io/a", "x.y.registry.io/a", "evil.com/x.registry.io/a"}},
		"app*.k8s.io":           {[]string{"app1.k8s.io/a"}, []string{"x.k8s.io/a"}},
		"k8s.*":                 {[]string{"k8s.io/a"}, []string{"k8s.io.evil/a"}},
		"*.*.registry.io":       {[]string{"a.b.registry.io/a"}, []string{"a.registry.io/a"}},
		"registry.io:8080/path": {[]string{"registry.io:8080/path", "registry.io:8080/path/a"}, []string{"registry.io/path/a", "registry.io:8080/other"}},
		"docker.io/library":     {[]string{"docker.io/library/nginx"}, []string{"docker.io/team/nginx"}},
	} {
		u, err := parsePattern(pattern)
		if err != nil {
			t.Fatal(err)
		}
		p := program{}
		p.images = append(p.images, u)
		for _, image := range c.fits {
			if !p.matches(image) {
				t.Errorf("%s is not for %s", pattern, image)
			}
		}
		for _, image := range c.other {
			if p.matches(image) {
				t.Errorf("%s is for %s", pattern, image)
			}
		}
	}
}

func TestAnswersAreRemembered(t *testing.T) {
	const a, b2, elsewhere = "registry.example.com/a", "registry.example.com/b", "other.example.com/a"
	for name, c := range map[string]struct {
		scope, more string
		// images are asked for one after the other; after is how long before each; runs is how often the program has run then.
		images []string
		after  time.Duration
		runs   []int
	}{
		"for the image":       {"Image", "", []string{a, a, b2, a}, time.Minute, []int{1, 1, 2, 2}},
		"for the registry":    {"Registry", "", []string{a, b2, elsewhere, b2}, time.Minute, []int{1, 1, 2, 2}},
		"for all":             {"Global", "", []string{a, b2, elsewhere}, time.Minute, []int{1, 1, 1}},
		"by default":          {"Image", "", []string{a, a, a}, 6 * time.Minute, []int{1, 1, 2}},
		"as long as it says":  {"Image", `"cacheDuration":"1h0m0s",`, []string{a, a, a}, 25 * time.Minute, []int{1, 1, 1}},
		"not at all":          {"Global", `"cacheDuration":"0s",`, []string{a, a}, 0, []int{1, 2}},
		"until the very time": {"Image", `"cacheDuration":"1m0s",`, []string{a, a}, time.Minute, []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.program("one", answer(c.scope, c.more, "*.example.com", "u"))
			p := b.load(provider("one", `"*.example.com"`))
			for i, image := range c.images {
				b.clock.SetTime(b.clock.Now().Add(c.after))
				if users, err := b.users(p, image); users == "" || err != nil {
					t.Fatalf("%s: %q, %v", image, users, err)
				}
				if got := b.runs("one"); got != c.runs[i] {
					t.Errorf("after image %d, %s, it has run %d times, want %d", i, image, got, c.runs[i])
				}
			}
			if kept := len(p.answer); kept > 3 {
				t.Errorf("%d answers are kept", kept)
			}
		})
	}
}

func TestOldAnswersAreForgotten(t *testing.T) {
	b := newBox(t)
	b.program("one", answer("Image", "", "r.io", "u"))
	p := b.load(provider("one", "r.io"))
	for _, image := range []string{"r.io/a", "r.io/b", "r.io/c"} {
		if _, err := b.users(p, image); err != nil {
			t.Fatal(err)
		}
		if len(p.answer) != 1 {
			t.Errorf("after %s %d answers are kept", image, len(p.answer))
		}
		b.clock.SetTime(b.clock.Now().Add(10 * time.Minute))
	}
}

// Whoever may make pods may name images without end.
func TestSoManyAnswersAreKept(t *testing.T) {
	b := newBox(t)
	b.program("one", answer("Image", "", "r.io", "u"))
	p := b.load(provider("one", "r.io"))
	const images = 3 * maxKept
	image := func(i int) string { return "r.io/" + strconv.Itoa(i) }
	for i := range images {
		b.clock.SetTime(b.clock.Now().Add(time.Millisecond))
		p.remember("one", image(i), &protocol.CredentialProviderResponse{CacheKeyType: protocol.ImagePluginCacheKeyType}, time.Hour)
	}
	if len(p.answer) != maxKept {
		t.Errorf("%d answers are kept, want %d", len(p.answer), maxKept)
	}
	for i, want := range map[int]bool{images - 1: true, images - maxKept: true, images - maxKept - 1: false, 0: false} {
		if _, got := p.recall("one", image(i)); got != want {
			t.Errorf("the answer for image %d is known: %v, want %v", i, got, want)
		}
	}
}

func TestProgramsThatFail(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"it ends badly":     {"echo secret trouble >&2; exit 3", "credential provider one: exit status 3; the log of the node's agent has what it said"},
		"it says nothing":   {"", "does not answer with a CredentialProviderResponse"},
		"garbage":           {"echo '<html>'", "does not answer with a CredentialProviderResponse"},
		"another kind":      {`echo '{"apiVersion":"v1","kind":"Secret"}'`, `answers with the kind "Secret" of "v1"`},
		"another version":   {`echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1beta1","kind":"CredentialProviderResponse"}'`, "in place of"},
		"an unknown scope":  {answer("Pod", "", "r", "u"), `cacheKeyType "Pod"`},
		"too much":          {"head -c 3000000 /dev/zero", "more than 1048576 bytes"},
		"it goes away":      {"rm " + "$0; exit 1", "exit status 1"},
		"it is of a signal": {"kill -9 $$", "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.program("one", c.script)
			b.program("two", answer("Image", "", "*.example.com", "u"))
			p := b.load(provider("one", `"*.example.com"`) + provider("two", `"*.example.com"`))
			for n := 1; n <= 2; n++ {
				users, err := b.users(p, "registry.example.com/a")
				if err == nil || !strings.Contains(err.Error(), c.want) && n == 1 || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want %q", err, c.want)
				}
				if users != "*.example.com=u" {
					t.Errorf("the other one says %q", users)
				}
			}
			if b.runs("two") != 1 {
				t.Errorf("the other one was asked %d times", b.runs("two"))
			}
		})
	}
}

func TestMissingLater(t *testing.T) {
	b := newBox(t)
	b.program("one", answer("Image", "", "r.io", "u"))
	p := b.load(provider("one", `r.io`))
	if err := os.Remove(b.path("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.users(p, "r.io/a"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without the program: %v", err)
	}
	b.program("one", answer("Image", "", "r.io", "u"))
	if err := os.Chmod(b.path("one"), 0o757); err != nil { //nolint:gosec // that is the case
		t.Fatal(err)
	}
	if _, err := b.users(p, "r.io/a"); err == nil || !strings.Contains(err.Error(), "chmod go-w") || b.runs("one") > 0 {
		t.Errorf("when others can change it: %v after %d runs", err, b.runs("one"))
	}
	if err := os.Chmod(b.path("one"), 0o755); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	if users, err := b.users(p, "r.io/a"); users != "r.io=u" || err != nil {
		t.Errorf("when it is back it says %q, %v", users, err)
	}
}

// A program that hangs is ended, with what it started, even where that has hold of its output.
func TestNothingLivesOn(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		// patience grows until the script came to start its child.
		patience time.Duration
	}{
		"it hangs":          {"sleep 10000 & echo $! > CHILD; wait", time.Second},
		"it leaves a child": {"sleep 10000 & echo $! > CHILD; exit 0", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.program("one", strings.ReplaceAll(c.script, "CHILD", b.path("child")))
			p := b.load(provider("one", `r.io`))
			var text []byte
			for p.patience = c.patience; len(text) == 0; p.patience *= 4 {
				if _, err := b.users(p, "r.io/a"); err == nil || c.patience == time.Second && !strings.Contains(err.Error(), "did not answer in time") {
					t.Fatalf("it did not fail so: %v", err)
				}
				text, _ = os.ReadFile(b.path("child"))
			}
			child, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(time.Minute); alive(child); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("process %d lives on", child)
				}
			}
		})
	}
}

// alive says whether a process runs; one that nobody waits for is over.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ") && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestAskedOnceForAll(t *testing.T) {
	b := newBox(t)
	b.program("one", "until [ -e "+b.path("go")+" ]; do sleep 0.02; done\n"+answer("Image", "", "r.io", "u"))
	p := b.load(provider("one", `r.io`))
	away, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := p.Ask(away, "r.io/a")
		left <- err
	}()
	for deadline := time.Now().Add(time.Minute); b.runs("one") == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the program does not start")
		}
	}
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if users, err := b.users(p, "r.io/a"); users != "r.io=u" || err != nil {
				t.Errorf("%q, %v", users, err)
			}
		})
	}
	leave()
	if err := <-left; err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("who went away got %v", err)
	}
	b.write("go", "", 0o600)
	all.Wait()
	if runs := b.runs("one"); runs != 1 {
		t.Errorf("it ran %d times", runs)
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	good := provider("one", "r.io")
	for name, c := range map[string]struct{ text, want string }{
		"empty":              {"", "is empty"},
		"another kind":       {"apiVersion: v1\nkind: Pod\n", "can only hold a CredentialProviderConfig"},
		"no programs":        {strings.TrimSuffix(fileHead, "providers:\n") + "providers: []\n", "providers is empty"},
		"twice the same":     {fileHead + good + good, `provider "one": comes twice`},
		"a path":             {fileHead + provider("../one", "r.io"), "must be that of a program in the folder"},
		"no name":            {fileHead + provider(`""`, "r.io"), "must be that of a program"},
		"not there":          {fileHead + provider("two", "r.io"), "no such file"},
		"not executable":     {fileHead + provider("config.yaml", "r.io"), "is not a program that can be run"},
		"others can write":   {fileHead + provider("open", "r.io"), "chmod go-w"},
		"a folder":           {fileHead + provider("folder", "r.io"), "is not a program that can be run"},
		"no images":          {fileHead + provider("one", ""), "matchImages is empty"},
		"no pattern":         {fileHead + provider("one", `"https://r.io"`), "is not of the form HOST[:PORT][/PATH]"},
		"a bad pattern":      {fileHead + provider("one", `"r[.io"`), "matchImages"},
		"another protocol":   {fileHead + strings.Replace(good, "k8s.io/v1\n", "k8s.io/v7\n", 1), `apiVersion "credentialprovider.kubelet.k8s.io/v7"`},
		"no time":            {fileHead + strings.Replace(good, "  defaultCacheDuration: 10m\n", "", 1), "defaultCacheDuration must be"},
		"a negative time":    {fileHead + strings.Replace(good, "10m", "-10m", 1), "defaultCacheDuration must be"},
		"tokens of accounts": {fileHead + good + "  tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true}\n", "tokenAttributes"},
		"a bad variable":     {fileHead + good + "  env: [{name: 'a=b', value: c}]\n", "cannot be the name of a variable"},
		"an unknown field":   {fileHead + good + "  argz: []\n", `unknown field "providers[0].argz"`},
	} {
		b := newBox(t)
		b.program("one", "")
		b.program("open", "")
		if err := errors.Join(os.Chmod(b.path("open"), 0o777), os.Mkdir(b.path("folder"), 0o755)); err != nil {
			t.Fatal(err)
		}
		b.write("config.yaml", c.text, 0o600)
		_, err := Load(b.path("config.yaml"), b.dir, b.clock)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	b := newBox(t)
	b.program("one", "")
	b.write("config.yaml", fileHead+good, 0o600)
	if err := os.Chmod(b.dir, 0o777); err != nil { //nolint:gosec // that is the case
		t.Fatal(err)
	}
	for dir, want := range map[string]string{b.dir: "chmod go-w", b.path("one"): "is not a folder", b.path("none"): "no such file"} {
		if _, err := Load(b.path("config.yaml"), dir, b.clock); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with the folder %s: %v, want %q", dir, err, want)
		}
	}
	if _, err := Load("", t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "--image-credential-provider-config") {
		t.Errorf("without a file: %v", err)
	}
}
