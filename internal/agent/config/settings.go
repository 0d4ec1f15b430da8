package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/document"
	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/kubeletconfig"
)

// kubeletFile is a configuration file of a kubelet.
type kubeletFile = kubeletconfig.Configuration

// setting is something that the agent can be told by a flag, and in a file in a kubelet's words.
type setting struct {
	// flag is empty for what only a file can say.
	flag   string
	fields []string
	// take has the configuration do what the file says; what the file does not say stays. The error begins with the
	// field's name.
	take func(c *Config, f *kubeletFile) error
	// tell says in the file how the configuration is.
	tell func(c *Config, f *kubeletFile)
}

// LoadFile takes what the configuration file of a kubelet at path says, but for what was given by a flag. After an
// error nothing was taken.
func (c *Config) LoadFile(path string, given func(flag string) bool) error {
	data, err := document.Read(path)
	if err != nil {
		return err
	}
	var known []string
	for _, s := range settings {
		known = append(known, s.fields...)
	}
	said, err := kubeletconfig.Decode(data, known)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	besideIt(said, filepath.Dir(path))
	next := *c
	for _, s := range settings {
		if s.flag != "" && given(s.flag) {
			continue
		}
		if err := s.take(&next, said); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	*c = next
	return nil
}

// besideIt has relative paths in a file mean what is beside the file, as with a kubelet.
func besideIt(f *kubeletFile, dir string) {
	for _, path := range []*string{&f.StaticPodPath, f.ResolverConfig} {
		if path != nil && *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
}

// Configz is how the node is configured, in a kubelet's words.
func (c *Config) Configz() any {
	f := kubeletconfig.Fixed()
	for _, s := range settings {
		s.tell(c, f)
	}
	return map[string]any{"kubeletconfig": f}
}

// settings are all of them, in the order in which they are taken.
var settings = slices.Concat(placeSettings, networkSettings, roomSettings, imageSettings, evictionSettings)

var placeSettings = []setting{
	{"pod-manifest-path", []string{"staticPodPath"},
		func(c *Config, f *kubeletFile) error { return fill(&c.ManifestPath, f.StaticPodPath) },
		func(c *Config, f *kubeletFile) { f.StaticPodPath = c.ManifestPath }},
	{"runtime-endpoint", []string{"containerRuntimeEndpoint", "imageServiceEndpoint"},
		func(c *Config, f *kubeletFile) error {
			if images := f.ImageServiceEndpoint; images != "" &&
				images != cmp.Or(f.ContainerRuntimeEndpoint, c.RuntimeEndpoint) {
				return fmt.Errorf(
					"imageServiceEndpoint %q: containers and images are asked for at one socket, containerRuntimeEndpoint", images,
				)
			}
			return fill(&c.RuntimeEndpoint, f.ContainerRuntimeEndpoint)
		},
		func(c *Config, f *kubeletFile) {
			f.ContainerRuntimeEndpoint, f.ImageServiceEndpoint = c.RuntimeEndpoint, c.RuntimeEndpoint
		}},
	{"cgroup-root", []string{"cgroupRoot"},
		func(c *Config, f *kubeletFile) error { return fill(&c.CgroupRoot, f.CgroupRoot) },
		func(c *Config, f *kubeletFile) { f.CgroupRoot = c.CgroupRoot }},
	{"", []string{"cgroupDriver"},
		func(c *Config, f *kubeletFile) error {
			if d := cgroups.Driver(f.CgroupDriver); d != "" && d != cgroups.Cgroupfs && d != cgroups.Systemd {
				return fmt.Errorf("cgroupDriver %q: cgroups are made by cgroupfs or by systemd", f.CgroupDriver)
			}
			return fill(&c.CgroupDriver, f.CgroupDriver)
		},
		func(c *Config, f *kubeletFile) { f.CgroupDriver = c.CgroupDriver }},
	{"register-with-taints", []string{"registerWithTaints"},
		func(c *Config, f *kubeletFile) error {
			for _, t := range f.RegisterWithTaints {
				if t.Key == "" ||
					!slices.Contains(
						[]corev1.TaintEffect{
							corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
						},
						t.Effect,
					) {
					return fmt.Errorf(
						"registerWithTaints %q: a taint has a key, and the effect NoSchedule, PreferNoSchedule or NoExecute",
						t.ToString(),
					)
				}
			}
			if len(f.RegisterWithTaints) > 0 {
				c.Taints = f.RegisterWithTaints
			}
			return nil
		},
		func(c *Config, f *kubeletFile) { f.RegisterWithTaints = c.Taints }},
	{"verbosity", []string{"logging.verbosity"},
		func(c *Config, f *kubeletFile) error { return fill(&c.Verbosity, int(f.Logging.Verbosity)) },
		func(c *Config, f *kubeletFile) { f.Logging.Verbosity = logsapi.VerbosityLevel(c.Verbosity) }},
	{"seccomp-default", []string{"seccompDefault"},
		func(c *Config, f *kubeletFile) error { return fillFrom(&c.SeccompDefault, f.SeccompDefault) },
		func(c *Config, f *kubeletFile) { f.SeccompDefault = &c.SeccompDefault }},
	{"", []string{"failSwapOn"},
		func(c *Config, f *kubeletFile) error { return fillFrom(&c.FailSwapOn, f.FailSwapOn) },
		func(c *Config, f *kubeletFile) { f.FailSwapOn = &c.FailSwapOn }},
	{"", []string{"failCgroupV1"},
		func(c *Config, f *kubeletFile) error { return fillFrom(&c.FailCgroupV1, f.FailCgroupV1) },
		func(c *Config, f *kubeletFile) { f.FailCgroupV1 = &c.FailCgroupV1 }},
}

var networkSettings = []setting{
	{"port", []string{"port"},
		func(c *Config, f *kubeletFile) error { return fill(&c.Port, f.Port) },
		func(c *Config, f *kubeletFile) { f.Port = c.Port }},
	{"healthz-bind-address", []string{"healthzPort", "healthzBindAddress"}, takeHealth, tellHealth},
	{"cluster-domain", []string{"clusterDomain"},
		func(c *Config, f *kubeletFile) error { return fill(&c.ClusterDomain, f.ClusterDomain) },
		func(c *Config, f *kubeletFile) { f.ClusterDomain = c.ClusterDomain }},
	{"cluster-dns", []string{"clusterDNS"},
		func(c *Config, f *kubeletFile) error {
			if len(f.ClusterDNS) > 0 {
				c.ClusterDNS = f.ClusterDNS
			}
			return nil
		},
		func(c *Config, f *kubeletFile) { f.ClusterDNS = c.ClusterDNS }},
	{"resolv-conf", []string{"resolvConf"},
		func(c *Config, f *kubeletFile) error {
			if f.ResolverConfig != nil && *f.ResolverConfig == "" {
				return errors.New(`resolvConf "": pods resolve names by some file; name one, or leave it out`)
			}
			return fillFrom(&c.ResolvConf, f.ResolverConfig)
		},
		func(c *Config, f *kubeletFile) { f.ResolverConfig = &c.ResolvConf }},
}

var roomSettings = []setting{
	{"max-pods", []string{"maxPods"},
		func(c *Config, f *kubeletFile) error { return fill(&c.MaxPods, int64(f.MaxPods)) },
		func(c *Config, f *kubeletFile) { f.MaxPods = int32(c.MaxPods) }},
	{"pod-max-pids", []string{"podPidsLimit"},
		func(c *Config, f *kubeletFile) error {
			if f.PodPidsLimit != nil {
				c.PodPIDs = max(*f.PodPidsLimit, 0)
			}
			return nil
		},
		func(c *Config, f *kubeletFile) { f.PodPidsLimit = new(cmp.Or(c.PodPIDs, -1)) }}, // no limit, in a kubelet's words
	{"system-reserved", []string{"systemReserved"},
		func(c *Config, f *kubeletFile) error { return fillMap(&c.SystemReserved, f.SystemReserved) },
		func(c *Config, f *kubeletFile) { f.SystemReserved = c.SystemReserved }},
	{"kube-reserved", []string{"kubeReserved"},
		func(c *Config, f *kubeletFile) error { return fillMap(&c.KubeReserved, f.KubeReserved) },
		func(c *Config, f *kubeletFile) { f.KubeReserved = c.KubeReserved }},
	{"container-log-max-size", []string{"containerLogMaxSize"},
		func(c *Config, f *kubeletFile) error { return fill(&c.LogMaxSize, f.ContainerLogMaxSize) },
		func(c *Config, f *kubeletFile) { f.ContainerLogMaxSize = c.LogMaxSize }},
	{"container-log-max-files", []string{"containerLogMaxFiles"},
		func(c *Config, f *kubeletFile) error {
			return fillNumber(&c.LogMaxFiles, f.ContainerLogMaxFiles, "containerLogMaxFiles", 2, 1<<31-1)
		},
		func(c *Config, f *kubeletFile) { f.ContainerLogMaxFiles = new(int32(c.LogMaxFiles)) }},
	{"allowed-unsafe-sysctls", []string{"allowedUnsafeSysctls"},
		func(c *Config, f *kubeletFile) error {
			if len(f.AllowedUnsafeSysctls) > 0 {
				c.AllowedUnsafeSysctls = f.AllowedUnsafeSysctls
			}
			return nil
		},
		func(c *Config, f *kubeletFile) { f.AllowedUnsafeSysctls = c.AllowedUnsafeSysctls }},
	{"shutdown-grace-period", []string{"shutdownGracePeriod"},
		func(c *Config, f *kubeletFile) error { return fill(&c.ShutdownGrace, f.ShutdownGracePeriod.Duration) },
		func(c *Config, f *kubeletFile) { f.ShutdownGracePeriod = metav1.Duration{Duration: c.ShutdownGrace} }},
	{"shutdown-grace-period-critical-pods", []string{"shutdownGracePeriodCriticalPods"},
		func(c *Config, f *kubeletFile) error {
			return fill(&c.ShutdownGraceCritical, f.ShutdownGracePeriodCriticalPods.Duration)
		},
		func(c *Config, f *kubeletFile) {
			f.ShutdownGracePeriodCriticalPods = metav1.Duration{Duration: c.ShutdownGraceCritical}
		}},
}

var imageSettings = []setting{
	{"minimum-image-ttl-duration", []string{"imageMinimumGCAge"},
		func(c *Config, f *kubeletFile) error { return fill(&c.ImageMinAge, f.ImageMinimumGCAge.Duration) },
		func(c *Config, f *kubeletFile) { f.ImageMinimumGCAge = metav1.Duration{Duration: c.ImageMinAge} }},
	{"image-maximum-gc-age", []string{"imageMaximumGCAge"},
		func(c *Config, f *kubeletFile) error { return fill(&c.ImageMaxAge, f.ImageMaximumGCAge.Duration) },
		func(c *Config, f *kubeletFile) { f.ImageMaximumGCAge = metav1.Duration{Duration: c.ImageMaxAge} }},
	{"image-gc-high-threshold", []string{"imageGCHighThresholdPercent"},
		func(c *Config, f *kubeletFile) error {
			return fillNumber(&c.ImageGCHigh, f.ImageGCHighThresholdPercent, "imageGCHighThresholdPercent", 1, 100)
		},
		func(c *Config, f *kubeletFile) { f.ImageGCHighThresholdPercent = new(int32(c.ImageGCHigh)) }},
	{"image-gc-low-threshold", []string{"imageGCLowThresholdPercent"},
		func(c *Config, f *kubeletFile) error {
			return fillNumber(&c.ImageGCLow, f.ImageGCLowThresholdPercent, "imageGCLowThresholdPercent", 1, 100)
		},
		func(c *Config, f *kubeletFile) { f.ImageGCLowThresholdPercent = new(int32(c.ImageGCLow)) }},
	{"", []string{"serializeImagePulls", "maxParallelImagePulls"}, takePulls,
		func(c *Config, f *kubeletFile) {
			f.SerializeImagePulls = new(c.MaxPulls == 1)
			if c.MaxPulls > 1 {
				f.MaxParallelImagePulls = new(int32(c.MaxPulls))
			}
		}},
}

func takePulls(c *Config, f *kubeletFile) error {
	serial, most := f.SerializeImagePulls != nil && *f.SerializeImagePulls, f.MaxParallelImagePulls
	switch {
	case most != nil && *most < 1:
		return fmt.Errorf("maxParallelImagePulls %d: one image at a time at least is pulled", *most)
	case most != nil && serial && *most > 1:
		return errors.New(
			"maxParallelImagePulls: with serializeImagePulls only one image at a time is pulled; leave one of them out",
		)
	case serial:
		c.MaxPulls = 1
	case most != nil:
		c.MaxPulls = int(*most)
	}
	return nil
}

var evictionSettings = []setting{
	{"eviction-hard", []string{"evictionHard", "mergeDefaultEvictionSettings"}, takeHard,
		func(c *Config, f *kubeletFile) { f.EvictionHard = spread(c.EvictionHard, "<") }},
	{"eviction-soft", []string{"evictionSoft"},
		func(c *Config, f *kubeletFile) error { return fill(&c.EvictionSoft, joined(f.EvictionSoft, "<")) },
		func(c *Config, f *kubeletFile) { f.EvictionSoft = spread(c.EvictionSoft, "<") }},
	{"eviction-soft-grace-period", []string{"evictionSoftGracePeriod"},
		func(c *Config, f *kubeletFile) error {
			return fill(&c.EvictionSoftGrace, joined(f.EvictionSoftGracePeriod, "="))
		},
		func(c *Config, f *kubeletFile) { f.EvictionSoftGracePeriod = spread(c.EvictionSoftGrace, "=") }},
	{"eviction-minimum-reclaim", []string{"evictionMinimumReclaim"},
		func(c *Config, f *kubeletFile) error {
			return fill(&c.EvictionReclaim, joined(f.EvictionMinimumReclaim, "="))
		},
		func(c *Config, f *kubeletFile) { f.EvictionMinimumReclaim = spread(c.EvictionReclaim, "=") }},
	{"eviction-max-pod-grace-period", []string{"evictionMaxPodGracePeriod"},
		func(c *Config, f *kubeletFile) error {
			return fill(&c.EvictionMaxPodGrace, int64(f.EvictionMaxPodGracePeriod))
		},
		func(c *Config, f *kubeletFile) { f.EvictionMaxPodGracePeriod = int32(c.EvictionMaxPodGrace) }},
	{"eviction-pressure-transition-period", []string{"evictionPressureTransitionPeriod"},
		func(c *Config, f *kubeletFile) error {
			return fill(&c.PressureTransition, f.EvictionPressureTransitionPeriod.Duration)
		},
		func(c *Config, f *kubeletFile) {
			f.EvictionPressureTransitionPeriod = metav1.Duration{Duration: c.PressureTransition}
		}},
}

// takeHard takes the thresholds, in a kubelet's way: those that are named replace all, unless they are to be merged; 0
// % and 100 % are none.
func takeHard(c *Config, f *kubeletFile) error {
	if f.EvictionHard == nil {
		return nil
	}
	want := map[string]string{}
	if f.MergeDefaultEvictionSettings != nil && *f.MergeDefaultEvictionSettings {
		want = spread(eviction.Default, "<")
	}
	maps.Copy(want, f.EvictionHard)
	maps.DeleteFunc(want, func(_, value string) bool { return value == "0%" || value == "100%" })
	c.EvictionHard = cmp.Or(joined(want, "<"), eviction.None)
	return nil
}

// joined is a list of thresholds as a flag has it; spread is one as a file has it.
func joined(list map[string]string, between string) string {
	var parts []string
	for _, signal := range slices.Sorted(maps.Keys(list)) {
		parts = append(parts, signal+between+list[signal])
	}
	return strings.Join(parts, ",")
}

func spread(list, between string) map[string]string {
	out := map[string]string{}
	if list == eviction.None {
		// Nothing would mean the defaults.
		for signal := range spread(eviction.Default, between) {
			out[signal] = "0%"
		}
		return out
	}
	for part := range strings.SplitSeq(list, ",") {
		if signal, value, ok := strings.Cut(part, between); ok {
			out[strings.TrimSpace(signal)] = strings.TrimSpace(value)
		}
	}
	return out
}

const DefaultHealthAddress = "127.0.0.1:10248"

func takeHealth(c *Config, f *kubeletFile) error {
	if f.HealthzPort == nil && f.HealthzBindAddress == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(cmp.Or(c.HealthAddress, DefaultHealthAddress))
	if err != nil {
		return fmt.Errorf("healthzBindAddress: %w", err)
	}
	if f.HealthzBindAddress != "" {
		if _, err := netip.ParseAddr(f.HealthzBindAddress); err != nil {
			return fmt.Errorf("healthzBindAddress %q is not an IP address", f.HealthzBindAddress)
		}
		host = f.HealthzBindAddress
	}
	switch p := f.HealthzPort; {
	case p == nil:
	case *p == 0:
		c.HealthAddress = ""
		return nil
	case *p < 0 || *p > 65535:
		return fmt.Errorf("healthzPort %d is not a port", *p)
	default:
		port = strconv.Itoa(int(*p))
	}
	c.HealthAddress = net.JoinHostPort(host, port)
	return nil
}

func tellHealth(c *Config, f *kubeletFile) {
	f.HealthzPort = new(int32(0))
	if at, err := netip.ParseAddrPort(c.HealthAddress); err == nil {
		f.HealthzBindAddress, f.HealthzPort = at.Addr().String(), new(int32(at.Port()))
	}
}

// fill takes what is said, unless it is nothing; a kubelet takes nothing and zero for the same.
func fill[T comparable](to *T, said T) error {
	var nothing T
	if said != nothing {
		*to = said
	}
	return nil
}

func fillFrom[T any](to, said *T) error {
	if said != nil {
		*to = *said
	}
	return nil
}

func fillMap(to *map[string]string, said map[string]string) error {
	if len(said) > 0 {
		*to = said
	}
	return nil
}

func fillNumber(to *int, said *int32, field string, least, most int32) error {
	if said == nil {
		return nil
	}
	if *said < least || *said > most {
		return fmt.Errorf("%s %d is not between %d and %d", field, *said, least, most)
	}
	*to = int(*said)
	return nil
}
