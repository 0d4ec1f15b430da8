// Package kubeletconfig reads the configuration file of a kubelet, and says what it asks for that cannot be had of a
// node here. It decides only: bytes and values come in, values and refusals go out.
//
// A field of such a file is one of three: the agent can be told it; or it is as it is (Fixed), and the file may say so;
// or it has no meaning here, and the file may say what a kubelet does when it says nothing (idle). Everything else is
// refused: a field that is taken and then not done is worse than one that is not taken.
package kubeletconfig
