// A userspace proxy in Go of the shape that kube-proxy's had (pkg/proxy/userspace in Kubernetes 1.25): a pair of io.Copy
// for each TCP connection, a goroutine with a socket of its own for each UDP client. Without Services, picking and
// retries, so it is a little faster than the real one.
//
//	go-proxy tcp/LISTEN-PORT/TARGET ... udp/LISTEN-PORT/TARGET ...
package main

import (
	"io"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// kube-proxy's default for --udp-timeout, and ours.
	udpTimeout = 250 * time.Millisecond
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: go-proxy tcp|udp/LISTEN-PORT/TARGET ...")
	}
	for _, arg := range os.Args[1:] {
		parts := strings.SplitN(arg, "/", 3)
		if len(parts) != 3 {
			log.Fatalf("not PROTOCOL/LISTEN-PORT/TARGET: %q", arg)
		}
		protocol, address, target := parts[0], ":"+parts[1], parts[2]
		switch protocol {
		case "tcp":
			listener, err := net.Listen("tcp4", address)
			if err != nil {
				log.Fatal(err)
			}
			go serveTCP(listener, target)
		case "udp":
			socket, err := net.ListenPacket("udp4", address)
			if err != nil {
				log.Fatal(err)
			}
			go serveUDP(socket, target)
		default:
			log.Fatalf("not a protocol: %q", protocol)
		}
	}
	select {}
}

func serveTCP(listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			log.Print(err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go func() {
			backend, err := net.DialTimeout("tcp4", target, dialTimeout)
			if err != nil {
				log.Print(err)
				client.Close()
				return
			}
			join(client.(*net.TCPConn), backend.(*net.TCPConn))
		}()
	}
}

func join(client, backend *net.TCPConn) {
	var directions sync.WaitGroup
	directions.Add(2)
	go copyBytes(client, backend, &directions)
	go copyBytes(backend, client, &directions)
	directions.Wait()
}

// Upstream closes both ends as soon as one direction has ended.
func copyBytes(to, from *net.TCPConn, done *sync.WaitGroup) {
	defer done.Done()
	io.Copy(to, from) //nolint:errcheck // a connection that breaks is closed, whatever broke it
	from.Close()
	to.Close()
}

func serveUDP(socket net.PacketConn, target string) {
	var lock sync.Mutex
	clients := map[string]net.Conn{}
	buffer := make([]byte, 4096)
	for {
		length, address, err := socket.ReadFrom(buffer)
		if err != nil {
			log.Print(err)
			continue
		}
		key := address.String()
		lock.Lock()
		backend, found := clients[key]
		if !found {
			backend, err = net.DialTimeout("udp4", target, dialTimeout)
			if err != nil {
				lock.Unlock()
				log.Print(err)
				continue
			}
			clients[key] = backend
			go func() {
				returnReplies(socket, address, backend)
				lock.Lock()
				delete(clients, key)
				lock.Unlock()
				backend.Close()
			}()
		}
		lock.Unlock()
		if _, err := backend.Write(buffer[:length]); err != nil {
			log.Print(err)
			continue
		}
		backend.SetDeadline(time.Now().Add(udpTimeout))
	}
}

func returnReplies(socket net.PacketConn, client net.Addr, backend net.Conn) {
	buffer := make([]byte, 4096)
	for {
		length, err := backend.Read(buffer)
		if err != nil {
			return
		}
		backend.SetDeadline(time.Now().Add(udpTimeout))
		if _, err := socket.WriteTo(buffer[:length], client); err != nil {
			log.Print(err)
			return
		}
	}
}
