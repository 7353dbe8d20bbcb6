// contended - eight goroutines fight for a sync.Mutex, a hundred wait for a channel; most of this
// the kernel never sees. Says so as JSON; "stop" on stdin ends the fight, and the answer says
// whether it was fair: how often the mutex was got, by counting under it and beside it.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

const fighters, idlers = 8, 100

func main() {
	var mutex sync.Mutex
	var all, started sync.WaitGroup
	var stop int32
	under, beside := 0, int64(0)
	never := make(chan int)

	for i := 0; i < idlers; i++ {
		started.Add(1)
		go func() {
			started.Done()
			<-never
		}()
	}
	for i := 0; i < fighters; i++ {
		started.Add(1)
		all.Add(1)
		go func() {
			defer all.Done()
			started.Done()
			for atomic.LoadInt32(&stop) == 0 {
				mutex.Lock()
				for k := 0; k < 2000; k++ {
					under++
				}
				mutex.Unlock()
				atomic.AddInt64(&beside, 2000)
			}
		}()
	}
	started.Wait()
	fmt.Printf("{\"fighters\":%d,\"idlers\":%d}\n", fighters, idlers)
	in := bufio.NewReader(os.Stdin)
	if line, _ := in.ReadString('\n'); line == "stop\n" {
		atomic.StoreInt32(&stop, 1)
		all.Wait()
		fmt.Printf("{\"under\":%d,\"beside\":%d}\n", under, beside)
		in.ReadString('\n')
	}
}
