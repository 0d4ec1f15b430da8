package credentialprovider

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	kubeletv1 "k8s.io/kubelet/config/v1"
	exec "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	execbeta "k8s.io/kubelet/pkg/apis/credentialprovider/v1beta1"

	"github.com/everynode/everynode/internal/agent/document"
)

const kind = "CredentialProviderConfig"

// spoken are the versions in which programs are spoken with; what is said is the same in both.
var spoken = []string{exec.SchemeGroupVersion.String(), execbeta.SchemeGroupVersion.String()}

// program is one of the configuration.
type program struct {
	name, path, version string
	args, env           []string
	images              []*url.URL
	keep                time.Duration
}

// load reads the configuration file and finds the programs. Its errors are one line and say what to do.
func load(file, dir string) ([]program, error) {
	if file == "" || dir == "" {
		return nil, errors.New(
			"credential providers need --image-credential-provider-config, a file, and --image-credential-provider-bin-dir, " +
				"the folder with the programs",
		)
	}
	data, err := document.Read(file)
	if err != nil {
		return nil, err
	}
	types := runtime.NewScheme()
	if err := kubeletv1.AddToScheme(types); err != nil {
		return nil, fmt.Errorf("register the kinds of kubelets' files: %w", err)
	}
	obj, err := document.Decode(data, types, kubeletv1.SchemeGroupVersion.WithKind(kind))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := checkFolder(dir); err != nil {
		return nil, err
	}
	config, ok := obj.(*kubeletv1.CredentialProviderConfig)
	if !ok {
		return nil, fmt.Errorf("%s: holds a %T", file, obj)
	}
	if len(config.Providers) == 0 {
		return nil, fmt.Errorf("%s: providers is empty; name one at least, or leave the flags out", file)
	}
	out := make([]program, 0, len(config.Providers))
	for i := range config.Providers {
		p, err := read(&config.Providers[i], dir)
		if err == nil && slices.ContainsFunc(out, func(o program) bool { return o.name == p.name }) {
			err = errors.New("comes twice")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: provider %q: %w", file, config.Providers[i].Name, err)
		}
		out = append(out, p)
	}
	return out, nil
}

func read(said *kubeletv1.CredentialProvider, dir string) (program, error) {
	p := program{name: said.Name, path: filepath.Join(dir, said.Name), version: said.APIVersion, args: said.Args}
	switch {
	case said.Name == "" || said.Name == "." || said.Name == ".." || strings.ContainsAny(said.Name, "/ "):
		return p, errors.New("the name must be that of a program in the folder")
	case !slices.Contains(spoken, said.APIVersion):
		return p, fmt.Errorf("apiVersion %q: the program must speak %s", said.APIVersion, strings.Join(spoken, " or "))
	case said.DefaultCacheDuration == nil || said.DefaultCacheDuration.Duration < 0:
		return p, errors.New("defaultCacheDuration must be 0s or more")
	case len(said.MatchImages) == 0:
		return p, errors.New("matchImages is empty")
	case said.TokenAttributes != nil:
		return p, errors.New("tokenAttributes: programs get no tokens of service accounts here; leave it out")
	}
	p.keep = said.DefaultCacheDuration.Duration
	for _, pattern := range said.MatchImages {
		u, err := parsePattern(pattern)
		if err != nil {
			return p, err
		}
		p.images = append(p.images, u)
	}
	var err error
	p.env, err = variables(said.Env)
	if err != nil {
		return p, err
	}
	return p, p.check()
}

// variables are those of an environment.
func variables(said []kubeletv1.ExecEnvVar) (out []string, err error) {
	for _, v := range said {
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") || strings.Contains(v.Value, "\x00") {
			return nil, fmt.Errorf("env %q cannot be the name of a variable", v.Name)
		}
		out = append(out, v.Name+"="+v.Value)
	}
	return out, nil
}

// checkFolder says what is wrong with the folder of programs that are run as root.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("find the folder of credential providers: %w", err)
	case !info.IsDir():
		return fmt.Errorf("--image-credential-provider-bin-dir %s is not a folder", dir)
	case info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0:
		return fmt.Errorf(
			"programs in %s are run as root, and others than its owner can put some there: chmod go-w %s", dir, dir,
		)
	}
	return nil
}

// check says what is wrong with the program's file. It is run as root.
func (p *program) check() error {
	info, err := os.Stat(p.path)
	switch {
	case err != nil:
		return fmt.Errorf("find the program: %w", err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s is not a program that can be run", p.path)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s is run as root and can be changed by others than its owner: chmod go-w %s", p.path, p.path)
	}
	return nil
}

// parsePattern reads a pattern of images: a host, in whose parts * stands for anything, and maybe a port and the
// beginning of a path.
func parsePattern(pattern string) (*url.URL, error) {
	u, err := url.Parse("https://" + pattern)
	if err != nil || u.Host == "" || strings.Contains(pattern, "://") {
		return nil, fmt.Errorf("matchImages %q is not of the form HOST[:PORT][/PATH]", pattern)
	}
	for _, part := range hostParts(u) {
		if _, err := path.Match(part, ""); err != nil {
			return nil, fmt.Errorf("matchImages %q: %w", pattern, err)
		}
	}
	return u, nil
}

func hostParts(u *url.URL) []string { return strings.Split(u.Hostname(), ".") }

// matches says whether one of the patterns is for the image, a name without tag and digest.
func (p *program) matches(image string) bool {
	target, err := url.Parse("https://" + image)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(p.images, func(pattern *url.URL) bool {
		want, have := hostParts(pattern), hostParts(target)
		if pattern.Port() != target.Port() || len(want) != len(have) || !strings.HasPrefix(target.Path, pattern.Path) {
			return false
		}
		for i := range want {
			if ok, err := path.Match(want[i], have[i]); err != nil || !ok {
				return false
			}
		}
		return true
	})
}
