package credentialprovider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	protocol "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"k8s.io/utils/clock"
)

const (
	// patience is how long a program may take, as with a kubelet; lingering is how long what it started may hold its
	// output after that.
	patience  = time.Minute
	lingering = 2 * time.Second
	// maxAnswer bounds what is read of a program's answer, maxWords of what it says went wrong, in bytes.
	maxAnswer, maxWords = 1 << 20, 1 << 10
	// maxKept bounds how many answers are remembered: users of pods name images, as many as they like.
	maxKept = 500
)

// Credentials are a user name and a password for each registry or beginning of an image's name.
type Credentials map[string]protocol.AuthConfig

// Programs are the programs of a node. It is safe for concurrent use.
type Programs struct {
	programs []program
	clock    clock.PassiveClock
	// patience is the constant, but in tests.
	patience time.Duration
	asking   singleflight.Group

	mu     sync.Mutex
	answer map[question]remembered
}

// question is what an answer is for: an image, all of a registry, or with neither everything.
type question struct {
	program string
	scope   protocol.PluginCacheKeyType
	what    string
}

type remembered struct {
	credentials Credentials
	until       time.Time
}

// Load reads the configuration file, of the programs in the folder dir.
func Load(file, dir string, clk clock.PassiveClock) (*Programs, error) {
	programs, err := load(file, dir)
	if err != nil {
		return nil, err
	}
	return &Programs{programs: programs, clock: clk, patience: patience, answer: map[question]remembered{}}, nil
}

// Ask returns what the programs for an image say, a name without tag and digest, in the order of the configuration. The
// error says which programs failed and why; what the others said is there all the same.
func (p *Programs) Ask(ctx context.Context, image string) (all []Credentials, err error) {
	for i := range p.programs {
		one := &p.programs[i]
		if !one.matches(image) {
			continue
		}
		credentials, failed := p.ask(ctx, one, image)
		switch {
		case failed == nil:
			all = append(all, credentials)
		case err == nil:
			err = fmt.Errorf("credential provider %s: %w", one.name, failed)
		default:
			err = fmt.Errorf("%w; credential provider %s: %w", err, one.name, failed)
		}
	}
	return all, err
}

// questions are those whose answers hold for the image, the narrowest first.
func questions(program, image string) []question {
	registry, _, _ := strings.Cut(image, "/")
	return []question{
		{program, protocol.ImagePluginCacheKeyType, image},
		{program, protocol.RegistryPluginCacheKeyType, registry},
		{program, protocol.GlobalPluginCacheKeyType, ""},
	}
}

func (p *Programs) recall(program, image string) (Credentials, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range questions(program, image) {
		if known, ok := p.answer[q]; ok && p.clock.Now().Before(known.until) {
			return known.credentials, true
		}
	}
	return nil, false
}

func (p *Programs) remember(program, image string, response *protocol.CredentialProviderResponse, keep time.Duration) {
	if response.CacheDuration != nil {
		keep = response.CacheDuration.Duration
	}
	if keep <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	maps.DeleteFunc(p.answer, func(_ question, r remembered) bool { return !now.Before(r.until) })
	for _, q := range questions(program, image) {
		if q.scope == response.CacheKeyType {
			p.answer[q] = remembered{response.Auth, now.Add(keep)}
		}
	}
	if len(p.answer) > maxKept {
		delete(p.answer, p.first())
	}
}

// first is the question whose answer ends first. The lock is held.
func (p *Programs) first() (out question) {
	var until time.Time
	for q, r := range p.answer {
		if until.IsZero() || r.until.Before(until) {
			out, until = q, r.until
		}
	}
	return out
}

// ask runs the program, unless it is known what it says. Who asks at the same time gets the same answer.
func (p *Programs) ask(ctx context.Context, one *program, image string) (Credentials, error) {
	if known, ok := p.recall(one.name, image); ok {
		return known, nil
	}
	// It goes on for the others when the first who asked goes away.
	result := p.asking.DoChan(one.name+" "+image, func() (any, error) {
		if known, ok := p.recall(one.name, image); ok {
			return known, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.patience)
		defer cancel()
		response, err := one.run(ctx, image)
		if err != nil {
			return nil, err
		}
		p.remember(one.name, image, response, one.keep)
		return Credentials(response.Auth), nil
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-result:
		credentials, _ := r.Val.(Credentials)
		return credentials, r.Err
	}
}

// run asks the program about one image.
func (p *program) run(ctx context.Context, image string) (*protocol.CredentialProviderResponse, error) {
	request, err := json.Marshal(&protocol.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: p.version, Kind: "CredentialProviderRequest"}, Image: image})
	if err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	answer, words := &bounded{most: maxAnswer}, &bounded{most: maxWords}
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), answer, words
	// What it started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = lingering
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind holds its output
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("did not answer in time, and was ended: %w", ctx.Err())
	case answer.over:
		return nil, fmt.Errorf("answers with more than %d bytes", maxAnswer)
	case err != nil:
		// What it says is for who looks after the node: the error is seen by users of pods.
		klog.FromContext(ctx).Info(
			"A credential provider failed", "program", p.name, "image", image, "err", err, "said", string(words.text),
		)
		return nil, fmt.Errorf("%w; the log of the node's agent has what it said", err)
	}
	return p.parse(answer.text)
}

func (p *program) parse(answer []byte) (*protocol.CredentialProviderResponse, error) {
	response := &protocol.CredentialProviderResponse{}
	if err := json.Unmarshal(answer, response); err != nil {
		// What it wrote may be a secret, and an error of the parser quotes a letter at most.
		return nil, fmt.Errorf("does not answer with a CredentialProviderResponse: %w", err)
	}
	if response.APIVersion != p.version || response.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf(
			"answers with the kind %q of %q in place of CredentialProviderResponse of %q",
			response.Kind, response.APIVersion, p.version,
		)
	}
	switch response.CacheKeyType {
	case protocol.ImagePluginCacheKeyType, protocol.RegistryPluginCacheKeyType, protocol.GlobalPluginCacheKeyType:
		return response, nil
	}
	return nil, fmt.Errorf("answers with the cacheKeyType %q; Image, Registry and Global are known", response.CacheKeyType)
}

// bounded keeps the beginning of what is written, and takes the rest without keeping it.
type bounded struct {
	most int
	text []byte
	over bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	room := b.most - len(b.text)
	if len(p) > room {
		b.over = true
	}
	b.text = append(b.text, p[:min(room, len(p))]...)
	return len(p), nil
}
